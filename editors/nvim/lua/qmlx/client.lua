-- The language client: which one serves a buffer, and how it is asked.
-- Must never start one without the executable, or touch other servers' clients.

local M = {}

local NAME = 'qmlx'
local BESIDE_MESSAGE = 20 -- cells of the last line that a hint leaves to "qmlx: ", 'showcmd' and 'ruler'
local WAIT_MS = 60000 -- for a client that is about to start; its daemon may take as long
local LOOK_MS = 50 -- between two looks whether it has

local expected = {} ---@type table<integer, boolean> clients that end because they were asked to
local last_asked = nil ---@type integer?
local said_missing = false

--- One line for the user. A moment later, for an error message inside a command would be an error of the command's
--- caller, with a traceback; and behind the start, which wipes out what was said.
---@param text string
---@param level? integer
function M.say(text, level)
  local function notify()
    vim.notify('qmlx: ' .. text, level or vim.log.levels.ERROR)
  end
  if vim.v.vim_did_enter == 1 then
    return vim.schedule(notify)
  end
  vim.api.nvim_create_autocmd('VimEnter', { once = true, callback = vim.schedule_wrap(notify) })
end

--- As `say`, but cut to what one line holds, for what stands in the answers as a whole: a longer message would have to
--- be confirmed.
---@param text string
---@param level? integer
function M.hint(text, level)
  local room = math.max(1, vim.o.columns - BESIDE_MESSAGE)
  local cut = vim.fn.strdisplaywidth(text) > room
  M.say(cut and vim.fn.strcharpart(text, 0, room - 1) .. '…' or text, level)
end

---@return string # what is run, as configured
function M.executable()
  local config = vim.lsp.config[NAME]
  local cmd = config and config.cmd
  return type(cmd) == 'table' and cmd[1] or 'qmlx-lsp'
end

---@return boolean
function M.is_installed()
  local config = vim.lsp.config[NAME]
  return (config ~= nil and type(config.cmd) == 'function') or vim.fn.executable(M.executable()) == 1
end

local MISSING = '%s is not on the PATH: see :help qmlx-install'

--- Say, once, that the server is missing.
---@param again? boolean also if it has been said before
---@return boolean # whether the executable is there
function M.check_installed(again)
  if M.is_installed() then
    said_missing = false
    return true
  end
  if again or not said_missing then
    said_missing = true
    M.say(MISSING:format(M.executable()))
  end
  return false
end

---@param name string a path
---@return string? # the nearest folder above it that has a marker
local function marked(name)
  local config = vim.lsp.config[NAME]
  return vim.fs.root(name, config and config.root_markers or { '.git' })
end

---@return string? # the working directory, unless that is no project for sure
local function working_folder()
  local here = vim.fs.normalize(vim.fn.getcwd())
  local home = vim.fs.normalize(vim.uv.os_homedir() or '~')
  return here ~= home and here ~= '/' and here or nil
end

--- The folder of a conversation: the nearest marker's, else the working directory if the file is in it.
---@param name string a path
---@return string?
function M.root_of(name)
  local found, here = marked(name), working_folder()
  if not found and here and vim.startswith(vim.fs.normalize(name), here .. '/') then
    return here
  end
  return found
end

--- `root_dir` of the configuration: files only, and only where there is something to run.
---@param bufnr integer
---@param on_dir fun(root?: string)
function M.root_dir(bufnr, on_dir)
  local name = vim.api.nvim_buf_get_name(bufnr)
  local is_file = name ~= '' and vim.bo[bufnr].buftype == '' and not name:find('^%a[%w+.-]*://')
  if not is_file or not M.check_installed() then
    return -- help is a file as well, for Neovim 0.12
  end
  on_dir(M.root_of(name))
end

---@param client? vim.lsp.Client
---@return boolean # whether it can be asked now
local function is_ready(client)
  return client ~= nil and client.initialized and not client:is_stopped() and not expected[client.id]
end

--- One that can be asked now: the buffer's, or without a buffer the one that was asked last.
---@param bufnr? integer
---@return vim.lsp.Client?
function M.get(bufnr)
  local last = not bufnr and last_asked and vim.lsp.get_client_by_id(last_asked) or nil
  if is_ready(last) then
    return last
  end
  for _, client in ipairs(vim.lsp.get_clients({ name = NAME, bufnr = bufnr })) do
    if is_ready(client) then
      return client
    end
  end
end

---@return boolean
function M.is_enabled()
  return vim.lsp.is_enabled == nil or vim.lsp.is_enabled(NAME)
end

---@param root? string
---@param bufnr? integer the buffer to attach; none without
---@return integer? # the client's id
function M.start(root, bufnr)
  local config = vim.deepcopy(vim.lsp.config[NAME])
  config.root_dir = root
  local reuse = config.reuse_client
  return vim.lsp.start(config, { bufnr = bufnr, attach = bufnr ~= nil, reuse_client = reuse, silent = true })
end

--- The client that is to serve a buffer, which may only begin: the file's, or one for the working directory.
---@param bufnr integer
---@return integer? # its id; nil where there is no folder to have a conversation about, and that has been said
local function starting(bufnr)
  local one = vim.lsp.get_clients({ name = NAME, bufnr = bufnr, _uninitialized = true })[1]
  if one then
    return one.id
  end
  local name = vim.api.nvim_buf_get_name(bufnr)
  if vim.bo[bufnr].buftype == '' and name ~= '' and not name:find('^%a[%w+.-]*://') then
    return M.start(M.root_of(name), bufnr)
  end
  local root = marked(vim.fn.getcwd() .. '/.') or working_folder()
  if root then
    return M.start(root)
  end
  M.say('there is no project here: open a file of one, or :cd to it')
end

--- Call `run` with a client, as soon as there is one: the buffer's; for answers, help and the like the one that was
--- asked last; for a buffer without a name the working directory's. Never another project's, only because that is
--- ready first. What stands in the way is said in one line.
---@param bufnr integer
---@param run fun(client: vim.lsp.Client)
function M.with(bufnr, run)
  local any = vim.bo[bufnr].buftype ~= ''
  local function found(client)
    last_asked = client.id
    run(client)
  end
  local client = M.get(bufnr) or (any and M.get())
  if client then
    return found(client)
  end
  if not M.check_installed(true) then
    return
  end
  if not M.is_enabled() then
    return M.say("it is not enabled: add vim.lsp.enable('qmlx') to your init.lua")
  end
  local id, waited = starting(bufnr), 0
  local leaves = id and expected[id] -- it is being restarted
  local function look()
    local one = id and vim.lsp.get_client_by_id(id)
    local ready = M.get(bufnr) or (is_ready(one) and one) or (any and M.get())
    if ready then
      return found(ready)
    end
    if leaves and not one then
      id, leaves = starting(bufnr), false
    end
    waited = waited + LOOK_MS
    if waited >= WAIT_MS then
      return M.say('the server does not start; see :checkhealth qmlx')
    end
    vim.defer_fn(look, LOOK_MS)
  end
  if id then
    look()
  end
end

--- The buffer is looked at: the server reads ahead what its user is likely to ask about.
---@param bufnr integer
function M.focus(bufnr)
  local client = M.get(bufnr)
  if client then
    client:notify('qmlx/didFocus', { textDocument = { uri = vim.uri_from_bufnr(bufnr) } })
  end
end

--- Neovim 0.12 has a value for JSON's null, which is true; here it is nothing, as in 0.11.
---@param value any
---@return any
local function without_null(value)
  if type(value) == 'table' then
    for key, one in pairs(value) do
      value[key] = without_null(one)
    end
  end
  if value ~= vim.NIL then
    return value
  end
end

--- Send a request; an error is one line.
---@param client vim.lsp.Client
---@param method string
---@param params any
---@param bufnr integer
---@param done fun(result: any)
---@param failed? fun(message: string) instead of the line
---@return string? # the request's id, which is the id of the job it begins
function M.request(client, method, params, bufnr, done, failed)
  local function fail(text)
    (failed or M.say)(text)
  end
  local ok, id = client:request(method, params, function(err, result)
    if err then
      fail((tostring(err.message):gsub('%s+', ' ')))
    else
      done(without_null(result))
    end
  end, bufnr)
  if not ok or not id then
    fail('the server has ended; it is started again, ask once more in a moment')
    return nil
  end
  return tostring(id)
end

--- Run a command of the server.
---@param client vim.lsp.Client
---@param command string
---@param argument table?
---@param bufnr integer
---@param done fun(result: any)
---@param failed? fun(message: string)
---@return string? # the request's id
function M.execute(client, command, argument, bufnr, done, failed)
  local params = { command = command, arguments = argument and { argument } or nil }
  return M.request(client, 'workspace/executeCommand', params, bufnr, done, failed)
end

--- This client is about to end because it was asked to, or is not after all.
---@param client_id integer
---@param is_expected boolean
function M.expect_exit(client_id, is_expected)
  expected[client_id] = is_expected or nil
end

---@param client_id integer
---@return boolean # whether it was; from now on no more
function M.expected_exit(client_id)
  local asked = expected[client_id] == true
  expected[client_id] = nil
  return asked
end

return M
