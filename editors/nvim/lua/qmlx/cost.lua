-- What a turn cost, in words: pure.

local M = {}

---@param number integer
---@return string # with separators, as people write it
local function thousands(number)
  local text = tostring(math.floor(number))
  local found
  repeat
    text, found = text:gsub('^(%-?%d+)(%d%d%d)', '%1,%2')
  until found == 0
  return text
end
M.thousands = thousands

--- What a turn cost, in one line.
---@param usage? table
---@return string
function M.line(usage)
  if not usage then
    return ''
  end
  local parts = {
    thousands(usage.prefilled or 0) .. ' tokens read',
    thousands((usage.live or 0) + (usage.restored or 0)) .. ' kept',
  }
  if (usage.restored or 0) > 0 then
    parts[2] = parts[2] .. (' (%s from disk)'):format(thousands(usage.restored))
  end
  table.insert(parts, thousands(usage.generated or 0) .. ' written')
  return table.concat(parts, ', ')
end

--- The conversation of a folder, which the server knows by its one real name.
---@param status table of `qmlx/status`
---@param root? string
---@return table?
function M.conversation(status, root)
  local real = root and (vim.uv.fs_realpath(root) or root)
  return vim.tbl_filter(function(one)
    return one.root == real
  end, status.conversations or {})[1]
end

return M
