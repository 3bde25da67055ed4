-- The language client: which one serves a buffer, and that there is one again when its daemon was killed.
-- Must never start one without the executable, start it again without end, or touch other servers' clients.

local M = {}

local NAME = 'qmlx'
local RESTARTS_MAX = 5 -- of one server within RESTARTS_WITHIN_MS
local RESTARTS_WITHIN_MS = 3 * 60 * 1000
local RESTART_MS = 200 -- until the first one; doubles with each
local REFUSED = 2 -- the exit code that trying again does not change
local WAIT_MS = 15000 -- for a client that is about to start

local restarts = {} ---@type integer[] when, by the monotonic clock
local expected = {} ---@type table<integer, boolean> clients that end because they were asked to
local exits = {} ---@type table<integer, integer[]> code and signal of those whose end is kept quiet
local last_asked = nil ---@type integer?
local said_missing = false

--- One line for the user. A moment later, for an error message inside a command would be an error of the command's
--- caller, with a traceback; and behind the start, which wipes out what was said.
---@param text string
---@param level? integer
function M.say(text, level)
  local function notify()
    vim.notify('qmlx: ' .. text, level or vim.log.levels.ERROR)
  end
  if vim.v.vim_did_enter == 1 then
    return vim.schedule(notify)
  end
  vim.api.nvim_create_autocmd('VimEnter', { once = true, callback = vim.schedule_wrap(notify) })
end

---@return string # what is run, as configured
function M.executable()
  local config = vim.lsp.config[NAME]
  local cmd = config and config.cmd
  return type(cmd) == 'table' and cmd[1] or 'qmlx-lsp'
end

---@return boolean
function M.is_installed()
  local config = vim.lsp.config[NAME]
  return (config ~= nil and type(config.cmd) == 'function') or vim.fn.executable(M.executable()) == 1
end

local MISSING = '%s is not on the PATH: see :help qmlx-install'

--- Say, once, that the server is missing.
---@param again? boolean also if it has been said before
---@return boolean # whether the executable is there
function M.check_installed(again)
  if M.is_installed() then
    said_missing = false
    return true
  end
  if again or not said_missing then
    said_missing = true
    M.say(MISSING:format(M.executable()))
  end
  return false
end

--- The folder of a conversation: the nearest marker's, else the working directory if the file is in it.
---@param name string a path
---@return string?
function M.root_of(name)
  local config = vim.lsp.config[NAME]
  local found = vim.fs.root(name, config and config.root_markers or { '.git' })
  if found then
    return found
  end
  local here = vim.fs.normalize(vim.fn.getcwd())
  local home = vim.fs.normalize(vim.uv.os_homedir() or '~')
  if here ~= home and here ~= '/' and vim.startswith(vim.fs.normalize(name), here .. '/') then
    return here
  end
end

--- `root_dir` of the configuration: files only, and only where there is something to run.
---@param bufnr integer
---@param on_dir fun(root?: string)
function M.root_dir(bufnr, on_dir)
  local name = vim.api.nvim_buf_get_name(bufnr)
  local is_file = name ~= '' and vim.bo[bufnr].buftype == '' and not name:find('^%a[%w+.-]*://')
  if not is_file or not M.check_installed() then
    return -- help is a file as well, for Neovim 0.12
  end
  on_dir(M.root_of(name))
end

---@param client? vim.lsp.Client
---@return boolean # whether it can be asked now
local function is_ready(client)
  return client ~= nil and client.initialized and not client:is_stopped() and not expected[client.id]
end

--- One that can be asked now: the buffer's, or without a buffer the one that was asked last.
---@param bufnr? integer
---@return vim.lsp.Client?
function M.get(bufnr)
  local last = not bufnr and last_asked and vim.lsp.get_client_by_id(last_asked) or nil
  if is_ready(last) then
    return last
  end
  for _, client in ipairs(vim.lsp.get_clients({ name = NAME, bufnr = bufnr })) do
    if is_ready(client) then
      return client
    end
  end
end

---@return boolean
function M.is_enabled()
  return vim.lsp.is_enabled == nil or vim.lsp.is_enabled(NAME)
end

---@param root? string
---@param bufnr? integer the buffer to attach; none without
local function start(root, bufnr)
  local config = vim.deepcopy(vim.lsp.config[NAME])
  config.root_dir = root
  vim.lsp.start(config, { bufnr = bufnr, attach = bufnr ~= nil, reuse_client = config.reuse_client, silent = true })
end

--- Call `run` with a client, as soon as there is one: that of the buffer; where the buffer has none (answers, help,
--- an empty one), any other, or one for the working directory. What stands in the way is said in one line.
---@param bufnr integer
---@param run fun(client: vim.lsp.Client)
function M.with(bufnr, run)
  local function found(client)
    last_asked = client.id
    run(client)
  end
  local client = M.get(bufnr) or (vim.bo[bufnr].buftype ~= '' and M.get())
  if client then
    return found(client)
  end
  if not M.check_installed(true) then
    return
  end
  if not M.is_enabled() then
    return M.say("it is not enabled: add vim.lsp.enable('qmlx') to your init.lua")
  end
  if #vim.lsp.get_clients({ name = NAME, bufnr = bufnr, _uninitialized = true }) == 0 then
    local name = vim.api.nvim_buf_get_name(bufnr)
    local plain = vim.bo[bufnr].buftype == '' and name ~= '' and not name:find('^%a[%w+.-]*://')
    start(M.root_of(plain and name or vim.fn.getcwd() .. '/.') or vim.fn.getcwd(), plain and bufnr or nil)
  end
  local waited = 0
  local function look()
    local ready = M.get(bufnr) or M.get()
    if ready then
      return found(ready)
    end
    waited = waited + 50
    if waited >= WAIT_MS then
      return M.say('the server does not start; see :checkhealth qmlx')
    end
    vim.defer_fn(look, 50)
  end
  look()
end

--- The buffer is looked at: the server reads ahead what its user is likely to ask about.
---@param bufnr integer
function M.focus(bufnr)
  local client = M.get(bufnr)
  if client then
    client:notify('qmlx/didFocus', { textDocument = { uri = vim.uri_from_bufnr(bufnr) } })
  end
end

--- Send a request; an error is one line.
---@param client vim.lsp.Client
---@param method string
---@param params any
---@param bufnr integer
---@param done fun(result: any)
---@param failed? fun(message: string) instead of the line
---@return string? # the request's id, which is the id of the job it begins
function M.request(client, method, params, bufnr, done, failed)
  local function fail(text)
    (failed or M.say)(text)
  end
  local ok, id = client:request(method, params, function(err, result)
    if err then
      fail((tostring(err.message):gsub('%s+', ' ')))
    else
      done(result)
    end
  end, bufnr)
  if not ok or not id then
    fail('the server has ended; it is started again, ask once more in a moment')
    return nil
  end
  return tostring(id)
end

--- Run a command of the server.
---@param client vim.lsp.Client
---@param command string
---@param argument table?
---@param bufnr integer
---@param done fun(result: any)
---@param failed? fun(message: string)
---@return string? # the request's id
function M.execute(client, command, argument, bufnr, done, failed)
  local params = { command = command, arguments = argument and { argument } or nil }
  return M.request(client, 'workspace/executeCommand', params, bufnr, done, failed)
end

--- This client is about to end because it was asked to, or is not after all.
---@param client_id integer
---@param is_expected boolean
function M.expect_exit(client_id, is_expected)
  expected[client_id] = is_expected or nil
end

--- Forget how often it ended; the user wants it.
function M.forgive()
  restarts = {}
end

---@return integer? # milliseconds until it may be started again; nil when it has ended too often
local function delay()
  local now = vim.uv.now()
  restarts = vim.tbl_filter(function(at)
    return now - at < RESTARTS_WITHIN_MS
  end, restarts)
  if #restarts >= RESTARTS_MAX then
    return nil
  end
  table.insert(restarts, now)
  return RESTART_MS * 2 ^ (#restarts - 1)
end

---@param root? string
---@param buffers integer[]
local function start_again(root, buffers)
  if vim.v.exiting ~= vim.NIL or not M.is_enabled() or not M.check_installed() then
    return
  end
  for _, bufnr in ipairs(buffers) do
    if vim.api.nvim_buf_is_loaded(bufnr) and not M.get(bufnr) then
      start(root, bufnr)
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
  local asked = expected[client_id]
  expected[client_id] = nil
  vim.schedule(function()
    require('qmlx.jobs').lost(client_id)
    require('qmlx.status').lost(client_id)
    local died = code ~= 0 and code ~= REFUSED and signal == 0
    if vim.v.exiting ~= vim.NIL or not (asked or died) then
      return -- stopped by somebody, or refused, and Neovim has said why
    end
    local wait = asked and RESTART_MS or delay()
    if not wait then
      return M.say('the server keeps ending: see :checkhealth qmlx, then :Qmlx restart')
    end
    vim.defer_fn(function()
      start_again(root, buffers)
    end, wait)
  end)
end

return M
