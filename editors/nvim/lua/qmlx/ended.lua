-- A client that has ended: that there is one again when its daemon was killed, or was asked to restart.
-- Must never start one without end, nor one that somebody has stopped.

local clients = require('qmlx.client')

local M = {}

local RESTARTS_MAX = 5 -- of one folder's client within RESTARTS_WITHIN_MS
local RESTARTS_WITHIN_MS = 3 * 60 * 1000
local RESTART_MS = 200 -- until the first one; doubles with each
local REFUSED = 2 -- the exit code that trying again does not change

local restarts = {} ---@type table<string, integer[]> when, by the monotonic clock, for each folder
local exits = {} ---@type table<integer, integer[]> code and signal of those whose end is kept quiet

--- Forget how often it ended; the user wants it.
function M.forgive()
  restarts = {}
end

---@param root? string
---@return integer? # milliseconds until it may be started again; nil when it has ended too often
local function delay(root)
  local now, key = vim.uv.now(), root or ''
  local recent = vim.tbl_filter(function(at)
    return now - at < RESTARTS_WITHIN_MS
  end, restarts[key] or {})
  restarts[key] = recent
  if #recent >= RESTARTS_MAX then
    return nil
  end
  table.insert(recent, now)
  return RESTART_MS * 2 ^ (#recent - 1)
end

---@param root? string
---@param buffers integer[]
local function start_again(root, buffers)
  if vim.v.exiting ~= vim.NIL or not clients.is_enabled() or not clients.check_installed() then
    return
  end
  for _, bufnr in ipairs(buffers) do
    if vim.api.nvim_buf_is_loaded(bufnr) and not clients.get(bufnr) then
      clients.start(root, bufnr)
    end
  end
end

--- Neovim tells of a client that ended by itself in a line that is longer than most windows, so that it has to be
--- confirmed; this one is started again instead. What is wrapped is private: without it there is only that line.
---@param client vim.lsp.Client
function M.quiet(client)
  local ended = client._on_exit
  if type(ended) ~= 'function' then
    return
  end
  client._on_exit = function(self, code, signal)
    exits[self.id] = { code, signal }
    return ended(self, code == REFUSED and code or 0, signal)
  end
end

--- `on_exit` of the configuration.
---@param code integer
---@param signal integer
---@param client_id integer
function M.exited(code, signal, client_id)
  if exits[client_id] then
    code, signal = exits[client_id][1], exits[client_id][2]
    exits[client_id] = nil
  end
  local client = vim.lsp.get_client_by_id(client_id)
  local buffers = client and vim.tbl_keys(client.attached_buffers) or {}
  local root = client and client.root_dir
  local asked = clients.expected_exit(client_id)
  vim.schedule(function()
    require('qmlx.jobs').lost(client_id)
    require('qmlx.status').lost(client_id)
    local died = code ~= 0 and code ~= REFUSED and signal == 0
    if vim.v.exiting ~= vim.NIL or not (asked or died) then
      return -- stopped by somebody, or refused, and Neovim has said why
    end
    local wait = asked and RESTART_MS or delay(root)
    if not wait then
      return clients.say('the server keeps ending: see :checkhealth qmlx, then :Qmlx restart')
    end
    vim.defer_fn(function()
      start_again(root, buffers)
    end, wait)
  end)
end

return M
