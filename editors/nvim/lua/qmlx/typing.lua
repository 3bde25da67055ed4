-- Asks for completions while somebody types, where Neovim does not do it itself (0.11).
-- Must never ask while a menu is open, show an answer to another text, or leave requests behind.

local clients = require('qmlx.client')
local config = require('qmlx.config')
local ghost = require('qmlx.ghost')

local M = {}

local METHOD = 'textDocument/inlineCompletion'
local AUTOMATIC = 2

local timer = nil ---@type uv.uv_timer_t?
local pending = nil ---@type {client: vim.lsp.Client, id: integer}?
local asked = 0 -- the newest request wins

--- Drop what was asked and what is about to be.
function M.stop()
  asked = asked + 1
  if timer then
    timer:stop()
    timer:close()
    timer = nil
  end
  if pending then
    if not pending.client:is_stopped() then
      pending.client:cancel_request(pending.id)
    end
    pending = nil
  end
end

--- Byte of a line at a position of the protocol.
---@param line string
---@param character integer
---@param encoding string
---@return integer
local function byte(line, character, encoding)
  return vim.str_byteindex(line, encoding, character, false)
end

--- An item of the server's for the text that it was asked about.
---@param item table
---@param at qmlx.Cursor
---@param client vim.lsp.Client
---@return qmlx.Suggestion?
local function taken(item, at, client)
  if type(item.insertText) ~= 'string' then
    return nil -- a snippet, which is never asked for
  end
  local first, last = at.column, at.column
  local range = item.range
  if range then
    if range.start.line ~= at.row or range['end'].line ~= at.row then
      return nil
    end
    first = byte(at.line, range.start.character, client.offset_encoding)
    last = byte(at.line, range['end'].character, client.offset_encoding)
  end
  if first > at.column or last < at.column then
    return nil
  end
  return {
    row = at.row,
    before = at.line:sub(1, first),
    after = at.line:sub(at.column + 1),
    covers = at.line:sub(at.column + 1, last),
    text = (item.insertText:gsub('\r\n?', '\n')),
    filter = item.filterText,
    lines = at.lines,
    command = item.command,
    client_id = client.id,
  }
end

---@param bufnr integer
local function request(bufnr)
  local client = clients.get(bufnr)
  local at = ghost.cursor(bufnr)
  if not client or not at or vim.fn.pumvisible() == 1 or not config.wants_inline(bufnr) then
    return
  end
  local number = asked
  local params = vim.lsp.util.make_position_params(0, client.offset_encoding) ---@type table
  params.context = { triggerKind = AUTOMATIC }
  local ok, id = client:request(METHOD, params, function(err, result)
    if number ~= asked then
      return
    end
    pending = nil
    local items = not err and type(result) == 'table' and (result.items or result) or {}
    local it = items[1] and taken(items[1], at, client)
    if it then
      ghost.show(bufnr, it)
    else
      ghost.clear()
    end
  end, bufnr)
  pending = ok and id and { client = client, id = id } or nil
end

--- Something was typed, deleted, or the cursor moved.
---@param bufnr integer
function M.moved(bufnr)
  M.stop()
  timer = vim.defer_fn(function()
    timer = nil
    request(bufnr)
  end, config.options.inline.debounce_ms)
end

return M
