-- A completion as plain data, and what of it is left to insert: pure, no editor in here.
-- Invariant: what is left is asked of the text as it is now; where that does not fit any more, nothing is left.

local M = {}

---@class qmlx.Suggestion
---@field row integer 0-based line that it is in
---@field before string the line before what it replaces
---@field after string the line behind the cursor, as it was
---@field covers string how much of `after` it replaces
---@field text string what stands behind `before` once it is taken
---@field filter? string what has been typed must agree with this as well
---@field lines integer of the buffer, as it was
---@field command? table run once it is taken
---@field client_id? integer

---@class qmlx.Cursor
---@field row integer 0-based
---@field line string
---@field column integer bytes before the cursor
---@field lines integer of the buffer

--- What is left to insert at the cursor; nil when the suggestion is for another place or another text.
---@param it qmlx.Suggestion
---@param at qmlx.Cursor
---@return string?
function M.rest(it, at)
  if at.row ~= it.row or at.lines ~= it.lines then
    return nil
  end
  local head, tail = at.line:sub(1, at.column), at.line:sub(at.column + 1)
  if tail ~= it.after or not vim.startswith(head, it.before) then
    return nil
  end
  local typed = head:sub(#it.before + 1)
  if not vim.startswith(it.text, typed) or (it.filter and not vim.startswith(it.filter, typed)) then
    return nil
  end
  local rest = it.text:sub(#typed + 1)
  return rest ~= '' and rest or nil
end

-- Letters of any script: whatever is not ASCII counts as one.
local WORD = '[%w_\128-\255]'
local OTHER = '[^%w_%s\128-\255]'

--- The first word, with the space before it; or the first run of other signs.
---@param rest string
---@return string
function M.word(rest)
  return rest:match('^%s*' .. WORD .. '+') or rest:match('^%s*' .. OTHER .. '+') or rest
end

--- The rest of the line; of what begins with a line break, that and the next line.
---@param rest string
---@return string
function M.line(rest)
  return rest:match('^\n?[^\n]*')
end

---@param rest string
---@param piece? 'word'|'line'
---@return string
function M.piece(rest, piece)
  if piece == 'word' then
    return M.word(rest)
  elseif piece == 'line' then
    return M.line(rest)
  end
  return rest
end

return M
