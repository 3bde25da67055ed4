-- Defines the command, the <Plug> maps and the autocommands; loads the rest when it is used.
-- Must never change a key of the user's, start anything, or fail.

if vim.g.loaded_qmlx then
  return
end
vim.g.loaded_qmlx = true

if vim.fn.has('nvim-0.11') == 0 then
  vim.api.nvim_create_user_command('Qmlx', function()
    vim.notify('qmlx: Neovim 0.11 or newer is needed', vim.log.levels.ERROR)
  end, { nargs = '*', range = true, bang = true, desc = 'qmlx (needs Neovim 0.11)' })
  return
end

vim.api.nvim_create_user_command('Qmlx', function(opts)
  require('qmlx.commands').run(opts)
end, {
  nargs = '*',
  range = true,
  bang = true,
  desc = 'Ask qmlx, or have it do something',
  complete = function(lead, line)
    return require('qmlx.commands').complete(lead, line)
  end,
})

---@param modes string|string[]
---@param name string
---@param desc string
---@param run fun()
local function plug(modes, name, desc, run)
  vim.keymap.set(modes, ('<Plug>(qmlx-%s)'):format(name), run, { silent = true, desc = 'qmlx: ' .. desc })
end

plug('i', 'accept', 'accept the completion', function()
  require('qmlx').accept()
end)
plug('i', 'accept-word', 'accept one word of the completion', function()
  require('qmlx').accept('word')
end)
plug('i', 'accept-line', 'accept one line of the completion', function()
  require('qmlx').accept('line')
end)
plug('i', 'dismiss', 'dismiss the completion', function()
  require('qmlx').dismiss()
end)
plug('i', 'next', 'show another completion', function()
  require('qmlx').next()
end)
plug({ 'n', 'i' }, 'cancel', 'cancel what runs', function()
  require('qmlx').cancel()
end)
plug('n', 'close', 'close the answers', function()
  require('qmlx').close()
end)
plug('n', 'ask', 'ask about this place', function()
  vim.cmd.Qmlx('ask')
end)
-- A selection is given up by `:`, which leaves its lines as the range.
vim.keymap.set('x', '<Plug>(qmlx-ask)', ':Qmlx ask<CR>', { silent = true, desc = 'qmlx: ask about these lines' })
vim.keymap.set('x', '<Plug>(qmlx-rewrite)', ':Qmlx rewrite<CR>', { silent = true, desc = 'qmlx: rewrite these lines' })

local group = vim.api.nvim_create_augroup('qmlx', {})

---@param args table of an LspAttach or LspDetach
local function is_ours(args)
  local client = vim.lsp.get_client_by_id(args.data.client_id)
  return client ~= nil and client.name == 'qmlx'
end

-- Neovim starts nothing, and says nothing, where a server's program is missing.
vim.api.nvim_create_autocmd('FileType', {
  group = group,
  desc = 'qmlx: say that the server is missing',
  callback = function(args)
    local is_file = vim.bo[args.buf].buftype == '' and vim.api.nvim_buf_get_name(args.buf) ~= ''
    if is_file and vim.lsp.is_enabled and vim.lsp.is_enabled('qmlx') then
      require('qmlx.client').check_installed()
      return true
    end
  end,
})

vim.api.nvim_create_autocmd('LspAttach', {
  group = group,
  desc = 'qmlx: completions while typing',
  callback = function(args)
    if is_ours(args) then
      require('qmlx.inline').attach(args.buf)
    end
  end,
})
vim.api.nvim_create_autocmd('BufEnter', {
  group = group,
  desc = 'qmlx: tell the server which file is looked at',
  callback = function(args)
    if #vim.lsp.get_clients({ name = 'qmlx', bufnr = args.buf }) > 0 then
      require('qmlx.client').focus(args.buf)
    end
  end,
})
vim.api.nvim_create_autocmd('LspDetach', {
  group = group,
  desc = 'qmlx: no completions any more',
  callback = function(args)
    if is_ours(args) then
      require('qmlx.inline').detach(args.buf)
    end
  end,
})
