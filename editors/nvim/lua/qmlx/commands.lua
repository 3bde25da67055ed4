-- `:Qmlx`: one table of what it can do. Every mistake is one line.

local clients = require('qmlx.client')
local jobs = require('qmlx.jobs')
local place = require('qmlx.place')

local api = vim.api

local M = {}

local TOOLS_MS = 500 -- that completing a tool's name may take

---@class qmlx.Context
---@field client vim.lsp.Client
---@field bufnr integer
---@field opts table what the command was given
---@field text? string what stands behind the subcommand

---@param it qmlx.Context
---@return table? # {uri, range}; nil where the buffer is no document of the server's
local function here(it)
  if not place.is_document(it.bufnr, it.client) then
    return nil
  end
  return { uri = vim.uri_from_bufnr(it.bufnr), range = place.range(it.bufnr, it.client, it.opts) }
end

---@param it qmlx.Context
---@param kind string
---@param run fun(text: string)
local function with_text(it, kind, run)
  if it.text then
    run(it.text)
  else
    jobs.input(kind, run)
  end
end

---@param it qmlx.Context
local function ask(it)
  local at = here(it)
  with_text(it, 'ask', function(text)
    local params = { text = text }
    if at then
      params.textDocument, params.range = { uri = at.uri }, at.range
    elseif it.client.root_dir then
      params.root = it.client.root_dir
    end
    jobs.ask(it.client, it.bufnr, params, at and jobs.about(at))
  end)
end

--- A command about these lines.
---@param kind string
---@param needs_text? boolean
---@return fun(it: qmlx.Context)
local function about_lines(kind, needs_text)
  return function(it)
    local at = here(it)
    if not at then
      return clients.say('this buffer is no file that the server has')
    end
    local function run(text)
      at.text = text
      jobs.command(it.client, it.bufnr, kind, at, jobs.about(at))
    end
    if needs_text then
      return with_text(it, kind, run)
    end
    run(it.text)
  end
end

---@param it qmlx.Context
local function fix(it)
  local found = place.diagnostics(it.bufnr, it.opts)
  if #found == 0 then
    if it.text then
      return about_lines('fix')(it)
    end
    return clients.say('there is no diagnostic here; or say what is wrong: :Qmlx fix TEXT')
  end
  local function run(diagnostic)
    if not diagnostic then
      return
    end
    local at = here(it)
    if not at then
      return clients.say('this buffer is no file that the server has')
    end
    at.text = it.text
    at.diagnostic = place.diagnostic(it.bufnr, diagnostic, it.client)
    at.range = at.diagnostic.range
    jobs.command(it.client, it.bufnr, 'fix', at, jobs.about(at))
  end
  if #found == 1 then
    return run(found[1])
  end
  vim.ui.select(found, {
    prompt = 'Fix:',
    format_item = function(one)
      return ('%d: %s'):format(one.lnum + 1, (one.message:gsub('%s+', ' ')))
    end,
  }, run)
end

--- Names of the tools that the server offers here.
---@param client? vim.lsp.Client
---@param bufnr integer
---@return string[]
local function tools(client, bufnr)
  if not client or not place.is_document(bufnr, client) then
    return {}
  end
  local params = {
    textDocument = { uri = vim.uri_from_bufnr(bufnr) },
    range = place.range(bufnr, client, {}),
    context = { diagnostics = {}, only = { 'source.runTool' }, triggerKind = 1 },
  }
  local answered = client:request_sync('textDocument/codeAction', params, TOOLS_MS, bufnr)
  local names = {}
  for _, action in ipairs(answered and answered.result or {}) do
    local argument = type(action.command) == 'table' and (action.command.arguments or {})[1]
    if type(argument) == 'table' and argument.name then
      table.insert(names, argument.name)
    end
  end
  return names
end

---@param it qmlx.Context
local function tool(it)
  local function run(name)
    if name then
      jobs.command(it.client, it.bufnr, 'runTool', { name = name, root = it.client.root_dir })
    end
  end
  if it.text then
    return run(it.text)
  end
  local names = tools(it.client, it.bufnr)
  if #names == 0 then
    return clients.say('no tool is known here: describe one in .qmlx.toml, or give its name')
  end
  vim.ui.select(names, { prompt = 'Run:' }, run)
end

---@param it qmlx.Context
local function new(it)
  local root = it.client.root_dir
  local question = ('Begin a new conversation for %s? The old one stays in the log.'):format(root or 'this folder')
  if not it.opts.bang and vim.fn.confirm(question, '&Yes\n&No', 2) ~= 1 then
    return
  end
  local argument = root and { root = root } or nil
  clients.execute(it.client, 'qmlx.newConversation', argument, it.bufnr, function()
    clients.say('a new conversation has begun', vim.log.levels.INFO)
  end)
end

---@param it qmlx.Context
local function restart(it)
  require('qmlx.ended').forgive()
  local id = it.client.id
  local function run(force)
    clients.expect_exit(id, true)
    local argument = force and { force = true } or nil
    clients.execute(it.client, 'qmlx.restart', argument, it.bufnr, function() end, function(message)
      clients.expect_exit(id, false)
      if force or not message:find('connected') then
        clients.say(message)
      elseif vim.fn.confirm(message .. '\nRestart it all the same?', '&Yes\n&No', 2) == 1 then
        run(true)
      end
    end)
  end
  run(it.opts.bang)
end

---@class qmlx.Subcommand
---@field run fun(it: qmlx.Context)
---@field takes? 'text'|'tool'
---@field alone? boolean needs no client

---@type table<string, qmlx.Subcommand>
local SUBCOMMANDS = {
  ask = { run = ask, takes = 'text' },
  explain = { run = about_lines('explain'), takes = 'text' },
  fix = { run = fix, takes = 'text' },
  rewrite = { run = about_lines('rewrite', true), takes = 'text' },
  document = { run = about_lines('document'), takes = 'text' },
  tests = { run = about_lines('tests'), takes = 'text' },
  ['do'] = { run = about_lines('doComment') },
  tool = { run = tool, takes = 'tool' },
  new = { run = new },
  restart = { run = restart },
  status = {
    run = function(it)
      require('qmlx.view').status(it.client, it.bufnr)
    end,
  },
  log = {
    run = function(it)
      require('qmlx.view').log(it.client, it.bufnr)
    end,
  },
  cancel = {
    alone = true,
    run = function()
      jobs.cancel()
    end,
  },
  open = {
    alone = true,
    run = function()
      require('qmlx.answer').open(true)
    end,
  },
  health = {
    alone = true,
    run = function()
      vim.cmd.checkhealth('qmlx')
    end,
  },
}

---@return string[]
function M.names()
  local names = vim.tbl_keys(SUBCOMMANDS)
  table.sort(names)
  return names
end

--- Run `:Qmlx`.
---@param opts table as user commands get them
function M.run(opts)
  require('qmlx.config').highlights()
  local name = opts.fargs[1] or 'open'
  local subcommand = SUBCOMMANDS[name]
  if not subcommand then
    return clients.say(('there is no :Qmlx %s: see :help :Qmlx'):format(name))
  end
  local text = vim.trim((opts.args or ''):gsub('^%s*%S+', '', 1))
  if text ~= '' and not subcommand.takes then
    return clients.say((':Qmlx %s takes nothing more; to ask, :Qmlx ask %s'):format(name, text))
  end
  local bufnr = api.nvim_get_current_buf()
  local it = { bufnr = bufnr, opts = opts, text = text ~= '' and text or nil }
  if subcommand.alone then
    return subcommand.run(it)
  end
  clients.with(bufnr, function(client)
    it.client = client
    subcommand.run(it)
  end)
end

--- Complete `:Qmlx`.
---@param lead string
---@param line string
---@return string[]
function M.complete(lead, line)
  local name, rest = line:match('Qmlx!?%s+(%S+)%s+(.*)$')
  local found = {}
  if not name then
    found = M.names()
  elseif SUBCOMMANDS[name] and SUBCOMMANDS[name].takes == 'tool' and not rest:find('%s') then
    local bufnr = api.nvim_get_current_buf()
    found = tools(clients.get(bufnr), bufnr)
  end
  return vim.tbl_filter(function(one)
    return vim.startswith(one, lead)
  end, found)
end

return M
