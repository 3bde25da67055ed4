-- Ghost text: one suggestion drawn at the cursor, and taking it, whole or in pieces.
-- On Neovim 0.11 it shows all completions, on 0.12 only what is left of one of which a piece was taken.
-- Must never show what does not fit the text as it is, nor insert anything else than what it shows.
-- Invariant: taking is one undo step of its own.

local api = vim.api
local suggestion = require('qmlx.suggestion')

local M = {}

local namespace = api.nvim_create_namespace('qmlx.ghost')
local current = nil ---@type {bufnr: integer, it: qmlx.Suggestion}?

--- Where the cursor is; nil where no ghost text belongs.
---@param bufnr integer
---@return qmlx.Cursor?
function M.cursor(bufnr)
  if api.nvim_get_current_buf() ~= bufnr or not vim.startswith(api.nvim_get_mode().mode, 'i') then
    return nil
  end
  local at = api.nvim_win_get_cursor(0)
  return {
    row = at[1] - 1,
    line = api.nvim_get_current_line(),
    column = at[2],
    lines = api.nvim_buf_line_count(bufnr),
  }
end

--- Tabs as the blanks that they will be, for virtual text shows them otherwise.
---@param text string
---@param column integer where it begins, in cells
---@return string
local function expanded(text, column)
  local width = vim.bo.tabstop
  local out, cells = {}, column
  for part, tab in text:gmatch('([^\t]*)(\t?)') do
    cells = cells + vim.fn.strdisplaywidth(part)
    local blanks = tab ~= '' and width - cells % width or 0
    cells = cells + blanks
    table.insert(out, part .. (' '):rep(blanks))
  end
  return table.concat(out)
end

---@param bufnr integer
---@param at qmlx.Cursor
---@param rest string
local function draw(bufnr, at, rest)
  local lines = vim.split(rest, '\n', { plain = true })
  local column = vim.fn.strdisplaywidth(at.line:sub(1, at.column))
  local below = {}
  for index = 2, #lines do
    table.insert(below, { { expanded(lines[index], 0), 'QmlxGhost' } })
  end
  api.nvim_buf_set_extmark(bufnr, namespace, at.row, at.column, {
    virt_text = { { expanded(lines[1], column), 'QmlxGhost' } },
    virt_text_pos = 'inline',
    virt_lines = #below > 0 and below or nil,
    hl_mode = 'combine',
  })
end

function M.clear()
  if current then
    if api.nvim_buf_is_valid(current.bufnr) then
      api.nvim_buf_clear_namespace(current.bufnr, namespace, 0, -1)
    end
    current = nil
  end
end

--- Draw again what still fits; forget what does not.
---@return string? # what is left of it
function M.refresh()
  if not current then
    return nil
  end
  local bufnr = current.bufnr
  local at = vim.fn.pumvisible() == 0 and M.cursor(bufnr) or nil
  local rest = at and suggestion.rest(current.it, at)
  if not at or not rest then
    M.clear()
    return nil
  end
  api.nvim_buf_clear_namespace(bufnr, namespace, 0, -1)
  draw(bufnr, at, rest)
  return rest
end

---@param bufnr integer
---@param it qmlx.Suggestion
---@return boolean # whether it fits and is shown
function M.show(bufnr, it)
  M.clear()
  current = { bufnr = bufnr, it = it }
  return M.refresh() ~= nil
end

--- Begin an undo step: setting the global option again, unchanged, does that. A buffer's own stays.
local function break_undo()
  vim.go.undolevels = vim.go.undolevels
end

--- Put text at the cursor, in an undo step of its own.
---@param bufnr integer
---@param at qmlx.Cursor
---@param text string
---@param covers integer bytes behind the cursor that it replaces
function M.insert(bufnr, at, text, covers)
  local lines = vim.split(text, '\n', { plain = true })
  break_undo()
  api.nvim_buf_set_text(bufnr, at.row, at.column, at.row, at.column + covers, lines)
  local column = #lines[#lines] + (#lines == 1 and at.column or 0)
  api.nvim_win_set_cursor(0, { at.row + #lines, column })
  break_undo()
end

--- Insert at the cursor a piece of what is left of a suggestion, and go on showing the rest.
---@param bufnr integer
---@param it qmlx.Suggestion
---@param piece? 'word'|'line'
function M.take(bufnr, it, piece)
  local at = M.cursor(bufnr)
  local rest = at and suggestion.rest(it, at)
  M.clear()
  if not at or not rest then
    return
  end
  local text = suggestion.piece(rest, piece)
  local whole = #text == #rest
  M.insert(bufnr, at, text, whole and #it.covers or 0)
  local now = M.cursor(bufnr)
  if now and not whole then
    M.show(bufnr, {
      row = now.row,
      before = now.line:sub(1, now.column),
      after = now.line:sub(now.column + 1),
      covers = it.covers,
      text = rest:sub(#text + 1),
      lines = now.lines,
      command = it.command,
      client_id = it.client_id,
    })
  end
  local client = whole and it.command and it.client_id and vim.lsp.get_client_by_id(it.client_id)
  if client then
    client:exec_cmd(it.command, { bufnr = bufnr })
  end
end

--- What is shown in a buffer now.
---@param bufnr integer
---@return qmlx.Suggestion?
function M.shown(bufnr)
  if current and current.bufnr == bufnr and M.refresh() then
    return current.it
  end
end

api.nvim_create_autocmd({ 'CursorMovedI', 'TextChangedI', 'TextChangedP', 'InsertLeave', 'BufLeave' }, {
  group = api.nvim_create_augroup('qmlx.ghost', {}),
  desc = 'qmlx: ghost text that fits',
  callback = function(args)
    if args.event == 'InsertLeave' or args.event == 'BufLeave' then
      M.clear()
    else
      M.refresh()
    end
  end,
})

return M
