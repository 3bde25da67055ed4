-- `:checkhealth qmlx`: what is there, what is not, and what to do about it.

local clients = require('qmlx.client')

local M = {}

local WAIT_MS = 10000 -- for one call of the executable

---@param arguments string[]
---@return vim.SystemCompleted?
local function call(arguments)
  local ok, done = pcall(function()
    return vim.system(vim.list_extend({ clients.executable() }, arguments), { text = true }):wait(WAIT_MS)
  end)
  return ok and done or nil
end

---@return boolean
local function server()
  vim.health.start('qmlx: the server')
  if not clients.is_installed() then
    vim.health.error(('`%s` is not on the PATH'):format(clients.executable()), {
      'install it: see :help qmlx-install',
      "or say where it is: vim.lsp.config('qmlx', { cmd = { '/path/to/qmlx-lsp', '--stdio' } })",
    })
    return false
  end
  local version = call({ '--version' })
  if not version or version.code ~= 0 then
    local said = version and vim.trim(version.stderr or ''):match('[^\n]*$') or 'no answer'
    vim.health.error(('`%s --version` fails: %s'):format(clients.executable(), said), { 'install it again' })
    return false
  end
  vim.health.ok(('%s: %s'):format(vim.fn.exepath(clients.executable()), vim.trim(version.stdout)))
  local status = call({ 'daemon', 'status', '--json' })
  local ok, found = pcall(vim.json.decode, status and status.stdout or '')
  if not ok or type(found) ~= 'table' or found.running == false then
    local tried = call({ '--stdio' }) -- which starts one, and ends because nobody is there
    if tried and tried.code == 2 then -- a mistake in config.toml, say
      vim.health.error(vim.trim(tried.stderr or ''))
    else
      vim.health.info('no daemon was running: one has been started')
    end
    return true
  end
  local model = type(found.model) == 'table' and found.model or { name = found.model }
  vim.health.ok(('a daemon runs: version %s, process %s'):format(found.version or '?', found.pid or '?'))
  if model.state == 'failed' then
    vim.health.error(('model %s: %s'):format(model.name, model.message or 'failed'), {
      'choose another: qmlx-lsp model use NAME, then :Qmlx restart',
    })
  else
    vim.health.ok(('model: %s%s'):format(model.name or '?', model.state and ', ' .. model.state or ''))
  end
  return true
end

local function client()
  vim.health.start('qmlx: this Neovim')
  if not clients.is_enabled() then
    vim.health.error('it is not enabled', { "add vim.lsp.enable('qmlx') to your init.lua" })
  end
  local found = vim.lsp.get_clients({ name = 'qmlx' })
  if #found == 0 then
    vim.health.warn('no file is served', { 'open a file of a project; unnamed buffers are not served' })
  end
  for _, one in ipairs(found) do
    local count = vim.tbl_count(one.attached_buffers)
    local root = one.root_dir and vim.fn.fnamemodify(one.root_dir, ':~') or 'no folder'
    vim.health.ok(('client %d: %s, %d buffers, %s'):format(one.id, root, count, one.offset_encoding))
    if not one.root_dir then
      vim.health.warn('a file outside every project is served, but its questions are refused', {
        'open it below a folder with .git or .qmlx.toml, or from its folder',
      })
    end
  end
end

local function completions()
  vim.health.start('qmlx: completions while typing')
  vim.health.ok('shown by ' .. require('qmlx.inline').describe())
  local enabled = require('qmlx.config').options.inline.enabled
  if enabled == false then
    vim.health.info('turned off by setup{ inline = { enabled = false } }')
  end
  local tab = vim.fn.maparg('<Tab>', 'i', false, true)
  local accepting = false
  for _, map in ipairs(vim.api.nvim_get_keymap('i')) do
    accepting = accepting or (map.rhs or ''):find('qmlx-accept', 1, true) ~= nil
  end
  if accepting then
    vim.health.ok('a key accepts them')
  elseif vim.tbl_isempty(tab) then
    vim.health.warn('<Tab> is not mapped: nothing may accept a completion', { 'see :help qmlx-keys' })
  else
    local what = tab.desc or tab.rhs or 'a function'
    vim.health.info(('<Tab> is mapped to: %s. If that does not accept completions, see :help qmlx-keys'):format(what))
  end
end

function M.check()
  vim.health.start('qmlx: Neovim')
  if vim.fn.has('nvim-0.11') == 0 then
    vim.health.error('Neovim 0.11 or newer is needed')
    return
  end
  vim.health.ok('Neovim ' .. tostring(vim.version()))
  if server() then
    client()
    completions()
  end
end

return M
