-- Completions while typing, the same on all versions: Neovim's own (0.12) or those of qmlx.typing and qmlx.ghost.
-- Must never map a key, nor disturb the completions of other servers.
-- Invariant: what is taken fits what was typed meanwhile; a stale one is dropped, and never doubles letters.

local api = vim.api
local config = require('qmlx.config')
local ghost = require('qmlx.ghost')

local M = {}

---@return table? # Neovim's own, from 0.12 on
local function native()
  return vim.lsp.inline_completion
end

local function group(bufnr)
  return ('qmlx.inline:%d'):format(bufnr)
end

---@param bufnr integer
function M.attach(bufnr)
  config.highlights()
  if not config.wants_inline(bufnr) then
    return
  end
  local events = api.nvim_create_augroup(group(bufnr), {})
  if native() then
    native().enable(true, { bufnr = bufnr })
    -- What is left of a completion of which a piece was taken stands until Neovim shows the next one.
    api.nvim_create_autocmd('LspRequest', {
      group = events,
      buffer = bufnr,
      callback = function(args)
        local request = args.data.request
        if request.type == 'complete' and request.method == 'textDocument/inlineCompletion' then
          ghost.clear()
        end
      end,
    })
    return
  end
  api.nvim_create_autocmd({ 'InsertEnter', 'CursorMovedI', 'TextChangedI', 'TextChangedP' }, {
    group = events,
    buffer = bufnr,
    callback = function()
      require('qmlx.typing').moved(bufnr)
    end,
  })
  api.nvim_create_autocmd({ 'InsertLeave', 'BufLeave' }, {
    group = events,
    buffer = bufnr,
    callback = function()
      require('qmlx.typing').stop()
    end,
  })
end

---@param bufnr integer
function M.detach(bufnr)
  pcall(api.nvim_del_augroup_by_name, group(bufnr))
  ghost.clear()
end

--- What is wanted has changed: for every buffer that is served. What others have turned on stays on.
function M.again()
  for _, client in ipairs(vim.lsp.get_clients({ name = 'qmlx' })) do
    for bufnr in pairs(client.attached_buffers) do
      local is_on = pcall(api.nvim_get_autocmds, { group = group(bufnr) })
      if config.wants_inline(bufnr) then
        M.attach(bufnr)
      elseif is_on then
        M.detach(bufnr)
        if native() then
          native().enable(false, { bufnr = bufnr })
        end
      end
    end
  end
end

--- Take a piece of Neovim's own item. It is for the text as it was when it came: what was typed since is left out.
---@param bufnr integer
---@param item table
---@param piece? 'word'|'line'
---@return table? # the item, where Neovim is to insert it
local function take_native(bufnr, item, piece)
  local at = ghost.cursor(bufnr)
  local text = item.insert_text
  if not at or type(text) ~= 'string' then
    return not piece and item or nil
  end
  local row, first, last_row, last = at.row, at.column, at.row, at.column
  if item.range then
    row, first, last_row, last = item.range:to_extmark()
  end
  if row ~= at.row or last_row ~= at.row or first > at.column then
    return nil
  end
  ghost.take(bufnr, {
    row = row,
    before = at.line:sub(1, first),
    after = at.line:sub(at.column + 1),
    covers = at.line:sub(at.column + 1, last),
    text = text,
    lines = at.lines,
    command = item.command,
    client_id = item.client_id,
  }, piece)
end

--- Accept what is shown, or a piece of it. It is inserted a moment later, so that this can be used in an `<expr>` map.
---@param piece? 'word'|'line'
---@return boolean # whether there is something to accept
function M.accept(piece)
  local bufnr = api.nvim_get_current_buf()
  local it = ghost.shown(bufnr)
  if it then
    vim.schedule(function()
      ghost.take(bufnr, it, piece)
    end)
    return true
  end
  return native() ~= nil
    and native().get({
      bufnr = bufnr,
      on_accept = function(item)
        return take_native(bufnr, item, piece)
      end,
    })
end

--- Hide what is shown until something is typed.
---@return boolean # whether there was something
function M.dismiss()
  local bufnr = api.nvim_get_current_buf()
  local shown = ghost.shown(bufnr) ~= nil
  ghost.clear()
  if not native() then
    require('qmlx.typing').stop()
    return shown
  end
  -- Taken by nobody, and so only hidden.
  return native().get({ bufnr = bufnr, on_accept = function() end }) or shown
end

--- Show another one, where a server has several.
function M.next()
  if native() then
    native().select()
  end
end

--- What shows completions here, in words.
---@return string
function M.describe()
  return native() and "Neovim's own (vim.lsp.inline_completion)" or "the plugin's ghost text (Neovim 0.11)"
end

return M
