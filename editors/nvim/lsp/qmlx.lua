-- How Neovim runs qmlx-lsp; `vim.lsp.enable('qmlx')` turns it on and `vim.lsp.config('qmlx', {…})` changes it.
-- Loads nothing of the plugin but what decides whether to start.

-- Code actions come here: they stream into the answers, and their user is asked for the text that they need.
local commands = {}
for _, kind in ipairs({ 'ask', 'explain', 'fix', 'rewrite', 'document', 'tests', 'doComment', 'runTool' }) do
  commands['qmlx.' .. kind] = function(command, ctx)
    require('qmlx.jobs').client_command(kind, command, ctx)
  end
end

---@type vim.lsp.Config
return {
  cmd = { 'qmlx-lsp', '--stdio' },
  root_markers = { '.qmlx.toml', '.git', '.hg', '.jj', 'pyproject.toml', 'package.json', 'Cargo.toml', 'go.mod' },
  root_dir = function(bufnr, on_dir)
    require('qmlx.client').root_dir(bufnr, on_dir)
  end,
  workspace_required = false,
  capabilities = {
    -- Neovim 0.11 has no ghost text of its own and does not say that it takes any; the plugin shows it there.
    textDocument = { inlineCompletion = { dynamicRegistration = false } },
    -- With these, 0.12 tells of every edit in two lines that have to be confirmed.
    workspace = { workspaceEdit = { changeAnnotationSupport = vim.NIL } },
    -- Streams are shown here, so no documents are opened for answers.
    experimental = { qmlx = { panel = true } },
  },
  settings = { qmlx = vim.empty_dict() },
  handlers = {
    ['qmlx/stream'] = function(_, params, ctx)
      require('qmlx.jobs').stream(ctx.client_id, params)
    end,
    ['window/showMessage'] = function(_, params)
      require('qmlx.jobs').message(params)
      return vim.NIL
    end,
    ['qmlx/didChangeStatus'] = function(_, params, ctx)
      require('qmlx.status').changed(ctx.client_id, params)
    end,
  },
  commands = commands,
  on_init = function(client)
    require('qmlx.ended').quiet(client)
  end,
  on_exit = function(code, signal, client_id)
    require('qmlx.ended').exited(code, signal, client_id)
  end,
}
