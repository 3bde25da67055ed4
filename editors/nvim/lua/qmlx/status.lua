-- What the daemon does for each folder, as far as it says so: for status lines.
-- Must never ask anything of the server: a status line is drawn all the time.

local M = {}

---@class qmlx.Status
---@field kind string Normal, Busy, Warning or Error
---@field busy boolean
---@field message string
---@field model string

local MESSAGE_CHARS_MAX = 60 -- more would leave a status line no room for anything else

local known = {} ---@type table<integer, table<string, qmlx.Status>> by client, then by folder

---@param client_id integer
local function tell(client_id)
  vim.api.nvim_exec_autocmds('User', { pattern = 'QmlxStatus', modeline = false, data = { client_id = client_id } })
  vim.cmd.redrawstatus({ bang = true })
end

--- `qmlx/didChangeStatus`.
---@param client_id integer
---@param params table
function M.changed(client_id, params)
  local client = vim.lsp.get_client_by_id(client_id)
  local root = type(params.root) == 'string' and params.root or (client and client.root_dir) or ''
  known[client_id] = known[client_id] or {}
  known[client_id][root] = {
    kind = params.kind or 'Normal',
    busy = params.busy == true,
    message = type(params.message) == 'string' and params.message or '',
    model = type(params.model) == 'string' and params.model or '',
  }
  tell(client_id)
end

--- The server of this client has ended.
---@param client_id integer
function M.lost(client_id)
  if known[client_id] then
    known[client_id] = nil
    tell(client_id)
  end
end

--- What is known of the buffer's folder.
---@param bufnr? integer
---@return qmlx.Status?
function M.of(bufnr)
  local found = vim.lsp.get_clients({ name = 'qmlx', bufnr = bufnr or vim.api.nvim_get_current_buf() })
  local client = found[1] or vim.lsp.get_clients({ name = 'qmlx' })[1]
  local roots = client and known[client.id]
  if not client or not roots then
    return nil
  end
  return roots[client.root_dir or ''] or roots[next(roots)]
end

--- In a few words: "qmlx: answering", "qmlx: 20 read, 2,622 kept"; empty without a server.
---@param bufnr? integer
---@return string
function M.text(bufnr)
  local status = M.of(bufnr)
  if not status then
    return ''
  end
  local message = status.message:gsub(' tokens read', ' read')
  if status.kind == 'Error' then
    message = 'error: ' .. message
  end
  -- One line, without the sign that some status lines take as their own and others do not.
  message = vim.trim(message:gsub('%%', 'percent'):gsub('%s+', ' '))
  if vim.fn.strcharlen(message) > MESSAGE_CHARS_MAX then
    message = vim.fn.strcharpart(message, 0, MESSAGE_CHARS_MAX - 1) .. '…'
  end
  return 'qmlx: ' .. message
end

return M
