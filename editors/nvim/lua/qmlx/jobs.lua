-- Questions and commands that run: from the request to the end of its section in the answers.
-- Must never leave a section without an end, whatever became of the server, nor show another job's text in it.

local answer = require('qmlx.answer')
local clients = require('qmlx.client')
local cost = require('qmlx.cost')

local M = {}

---@class qmlx.Job
---@field id string the server's name for it
---@field kind string ask, explain, fix, …
---@field client_id integer
---@field token string of its progress
---@field section qmlx.Section
---@field opens boolean whether its text is what is wanted, and not an edit

-- What is shown of a kind, whether its text is what its user wants to read, and whether it changes the buffer.
local KINDS = {
  ask = { title = 'Ask', opens = true },
  explain = { title = 'Explain', opens = true },
  fix = { title = 'Fix', edits = true },
  rewrite = { title = 'Rewrite', edits = true },
  document = { title = 'Document', edits = true },
  tests = { title = 'Generate tests' },
  doComment = { title = 'Do what the comment says', edits = true },
  runTool = { title = 'Run', opens = true },
}
local ASKS_FOR = { ask = 'Ask qmlx: ', rewrite = 'Rewrite: ' }

local running = {} ---@type table<string, qmlx.Job> by token
local tokens = 0

---@param client_id integer
---@param id string
---@return qmlx.Job?
local function find(client_id, id)
  for _, job in pairs(running) do
    if job.client_id == client_id and job.id == id then
      return job
    end
  end
end

---@param job qmlx.Job
---@param text string
---@param highlight? string
local function finish(job, text, highlight)
  if running[job.token] == job then
    running[job.token] = nil
    answer.finish(job.section, text, highlight)
    vim.api.nvim_exec_autocmds('User', { pattern = 'QmlxDone', modeline = false, data = { kind = job.kind } })
  end
end

---@param client vim.lsp.Client
---@param kind string
---@param title string
---@param about? string
---@return qmlx.Job
local function begin(client, kind, title, about)
  tokens = tokens + 1
  local job = {
    id = '',
    kind = kind,
    client_id = client.id,
    token = ('qmlx-nvim-%d'):format(tokens),
    opens = KINDS[kind].opens or false,
  }
  job.section = answer.begin(title, about)
  answer.note(job.section, 'waiting')
  running[job.token] = job
  if job.opens then
    answer.open()
  end
  return job
end

---@param job qmlx.Job
---@param message string
local function failed(job, message)
  finish(job, message, 'QmlxFailed')
  answer.open()
  clients.hint(message)
end

local ENDS = {
  cancelled = { 'cancelled', 'QmlxCancelled' },
  length = { 'cut off at the longest reply that is allowed', 'QmlxCancelled' },
}

--- Ask a question; it streams into the answers.
---@param client vim.lsp.Client
---@param bufnr integer
---@param params table of `qmlx/ask`
---@param about? string
function M.ask(client, bufnr, params, about)
  local job = begin(client, 'ask', params.text, about)
  params.workDoneToken = job.token
  local id = clients.request(client, 'qmlx/ask', params, bufnr, function(result)
    if job.section.empty then
      answer.append(job.section, result.text or '')
    end
    local what = cost.line(result.usage)
    local ended = ENDS[result.finish]
    if result.error or result.finish == 'error' then
      failed(job, ('broken off: %s'):format(tostring(result.error or 'see the log'):gsub('%s+', ' ')))
    else
      finish(job, ended and ('%s; %s'):format(ended[1], what) or what, ended and ended[2])
    end
  end, function(message)
    failed(job, message)
  end)
  job.id = id or ''
end

--- Run one of the commands that ask the model, or a tool.
---@param client vim.lsp.Client
---@param bufnr integer
---@param kind string
---@param argument table
---@param about? string
function M.command(client, bufnr, kind, argument, about)
  if KINDS[kind].edits and not vim.bo[bufnr].modifiable then
    return clients.say("this buffer cannot be changed: its 'modifiable' is off")
  end
  local title = KINDS[kind].title
  local wanted = argument.text or argument.instruction or argument.name
  wanted = wanted or (argument.diagnostic and argument.diagnostic.message)
  local job = begin(client, kind, wanted and ('%s: %s'):format(title, wanted) or title, about)
  argument = vim.tbl_extend('force', argument, { workDoneToken = job.token })
  local id = clients.execute(client, 'qmlx.' .. kind, argument, bufnr, function() end, function(message)
    failed(job, message)
  end)
  job.id = id or ''
end

--- Text of `qmlx/stream`.
---@param client_id integer
---@param params table
function M.stream(client_id, params)
  local job = find(client_id, params.jobId)
  if job then
    answer.append(job.section, params.delta or '')
  end
end

--- The end of a command is the end of its progress, for that says what came of it: "fix: applied".
---@param job qmlx.Job
---@param message string
local function command_ended(job, message)
  local client = vim.lsp.get_client_by_id(job.client_id)
  local said = message:gsub('^[%w]+: ', '', 1)
  local cancelled = said:find('^cancelled')
  local bad = not cancelled
    and (said:find('^not ') or said:find('^no ') or said:find('nothing was changed') or said:find('^failed'))
  if not job.opens and bad then
    answer.open() -- what could not be applied is to be read
  end
  local highlight = bad and 'QmlxFailed' or (said:find('^cancelled') and 'QmlxCancelled') or nil
  if not client or job.kind == 'runTool' then
    return finish(job, said, highlight)
  end
  clients.request(client, 'qmlx/status', vim.empty_dict(), 0, function(status)
    local usage = (cost.conversation(status, client.root_dir) or {}).usage
    finish(job, usage and ('%s; %s'):format(said, cost.line(usage)) or said, highlight)
  end, function()
    finish(job, said, highlight)
  end)
end

--- An `LspProgress` that may be one of ours.
---@param token any
---@param value any
function M.progress(token, value)
  local job = running[token]
  if not job or type(value) ~= 'table' then
    return
  end
  if value.kind ~= 'end' then
    answer.note(job.section, value.message or 'waiting')
  elseif job.kind ~= 'ask' then
    command_ended(job, value.message or 'done')
  elseif (value.message or ''):find('^cancelled$') then
    finish(job, 'cancelled', 'QmlxCancelled') -- cancelled by somebody's $/cancelRequest: no answer follows
  end
end

vim.api.nvim_create_autocmd('LspProgress', {
  group = vim.api.nvim_create_augroup('qmlx.jobs', {}),
  desc = 'qmlx: how far a question is, and what came of a command',
  callback = function(args)
    local params = args.data.params or {}
    M.progress(params.token, params.value)
  end,
})

--- The server of this client has ended.
---@param client_id integer
function M.lost(client_id)
  for _, job in pairs(running) do
    if job.client_id == client_id then
      finish(job, 'the server ended here; what was written is kept: ask again', 'QmlxFailed')
      if not job.opens then
        clients.say(('%s: the server ended, and nothing was changed: ask again'):format(KINDS[job.kind].title))
      end
    end
  end
end

local LEVELS = { vim.log.levels.ERROR, vim.log.levels.WARN, vim.log.levels.INFO, vim.log.levels.DEBUG }

--- `window/showMessage`. How a command ended stands in the answers, so a hint of it is enough.
---@param params {type: integer, message: string}
function M.message(params)
  local text = vim.trim((params.message:gsub('%s+', ' ')))
  local say = KINDS[text:match('^(%w+): ')] and clients.hint or clients.say
  say(text, LEVELS[params.type])
end

---@return integer
function M.count()
  return vim.tbl_count(running)
end

--- Cancel all that this Neovim has running. What was written so far stays in the conversation.
function M.cancel()
  if M.count() == 0 then
    return clients.say('nothing runs', vim.log.levels.INFO)
  end
  local asked = {}
  for _, job in pairs(running) do
    local client = vim.lsp.get_client_by_id(job.client_id)
    if client and job.id ~= '' and not asked[job.id .. ':' .. client.id] then
      asked[job.id .. ':' .. client.id] = true
      clients.execute(client, 'qmlx.cancel', { jobId = job.id }, 0, function() end)
    end
  end
end

---@param argument table
---@return string # which lines, for people
function M.about(argument)
  local uri = argument.uri or (argument.textDocument and argument.textDocument.uri)
  if not uri then
    return ''
  end
  local name = vim.fn.fnamemodify(vim.uri_to_fname(uri), ':~:.')
  local range = argument.range
  if not range then
    return name
  end
  local first, last = range.start.line + 1, range['end'].line + 1
  if last > first and range['end'].character == 0 then
    last = last - 1
  end
  return first == last and ('%s:%d'):format(name, first) or ('%s:%d-%d'):format(name, first, last)
end

--- A command that the client knows, which is how code actions come here.
---@param kind string
---@param command lsp.Command
---@param ctx table
function M.client_command(kind, command, ctx)
  local client = vim.lsp.get_client_by_id(ctx.client_id)
  local argument = vim.deepcopy((command.arguments or {})[1] or {})
  if not client then
    return clients.say('the server has ended; it is started again, ask once more in a moment')
  end
  local bufnr = ctx.bufnr or 0
  local function run()
    if kind == 'ask' then
      local document = argument.textDocument or (argument.uri and { uri = argument.uri })
      local params = { text = argument.text or argument.instruction, textDocument = document }
      params.range, params.root = argument.range, argument.root
      return M.ask(client, bufnr, params, M.about(argument))
    end
    M.command(client, bufnr, kind, argument, M.about(argument))
  end
  if not ASKS_FOR[kind] or argument.text or argument.instruction then
    return run()
  end
  M.input(kind, function(text)
    argument.text = text
    run()
  end)
end

--- Ask the user for a text; nothing is done without one.
---@param kind string
---@param run fun(text: string)
function M.input(kind, run)
  vim.ui.input({ prompt = ASKS_FOR[kind] }, function(text)
    if text and vim.trim(text) ~= '' then
      run(text)
    end
  end)
end

return M
