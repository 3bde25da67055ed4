-- What a command is about: document, lines, diagnostics, as the protocol has them.

local api = vim.api

local M = {}

--- Whether the server knows the buffer as a document.
---@param bufnr integer
---@param client vim.lsp.Client
---@return boolean
function M.is_document(bufnr, client)
  return client.attached_buffers[bufnr] ~= nil
end

---@param bufnr integer
---@param row integer 0-based
---@param column integer bytes
---@param client vim.lsp.Client
---@return table # a position of the protocol
local function position(bufnr, row, column, client)
  local line = api.nvim_buf_get_lines(bufnr, row, row + 1, false)[1] or ''
  column = math.min(column, #line)
  return { line = row, character = vim.str_utfindex(line, client.offset_encoding, column, false) }
end

--- The lines of a command's range, or where the cursor is.
---@param bufnr integer
---@param client vim.lsp.Client
---@param opts {range?: integer, line1?: integer, line2?: integer}
---@return table
function M.range(bufnr, client, opts)
  if (opts.range or 0) > 0 then
    return {
      start = { line = opts.line1 - 1, character = 0 },
      ['end'] = position(bufnr, opts.line2 - 1, math.huge, client),
    }
  end
  local win = api.nvim_get_current_win()
  local at = api.nvim_win_get_buf(win) == bufnr and api.nvim_win_get_cursor(win) or { 1, 0 }
  local here = position(bufnr, at[1] - 1, at[2], client)
  return { start = here, ['end'] = here }
end

--- Diagnostics of the lines of a command: those at the cursor, or else of its line.
---@param bufnr integer
---@param opts {range?: integer, line1?: integer, line2?: integer}
---@return vim.Diagnostic[]
function M.diagnostics(bufnr, opts)
  if (opts.range or 0) > 0 then
    return vim.tbl_filter(function(found)
      return found.lnum + 1 <= opts.line2 and (found.end_lnum or found.lnum) + 1 >= opts.line1
    end, vim.diagnostic.get(bufnr))
  end
  local at = api.nvim_win_get_cursor(0)
  local on_line = vim.tbl_filter(function(found)
    return found.lnum <= at[1] - 1 and (found.end_lnum or found.lnum) >= at[1] - 1
  end, vim.diagnostic.get(bufnr))
  local exact = vim.tbl_filter(function(found)
    return found.lnum == at[1] - 1
      and found.col <= at[2]
      and (found.end_lnum ~= found.lnum or (found.end_col or found.col) > at[2])
  end, on_line)
  return #exact > 0 and exact or on_line
end

--- A diagnostic as the protocol has it.
---@param bufnr integer
---@param found vim.Diagnostic
---@param client vim.lsp.Client
---@return table
function M.diagnostic(bufnr, found, client)
  return {
    range = {
      start = position(bufnr, found.lnum, found.col or 0, client),
      ['end'] = position(bufnr, found.end_lnum or found.lnum, found.end_col or found.col or 0, client),
    },
    severity = found.severity,
    message = found.message,
    source = found.source,
    code = found.code,
  }
end

return M
