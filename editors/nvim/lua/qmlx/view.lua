-- What is read and closed again: the status in a small window, the conversation in a buffer.
-- Must never raise on what a server of another version leaves out.

local api = vim.api
local answer = require('qmlx.answer')
local clients = require('qmlx.client')
local cost = require('qmlx.cost')

local M = {}

M.TURNS_MAX = 200 -- of the conversation that are shown

local thousands = cost.thousands

---@param status table of `qmlx/status`
---@param root? string
---@return string[]
local function lines_of(status, root)
  local model = status.model or {}
  local lines = { ('model         %s: %s'):format(model.name or '?', model.message or model.state or '?') }
  local mine = cost.conversation(status, root)
  if root then
    local held = '%s tokens, %s in memory'
    held = mine and held:format(thousands(mine.tokens or 0), thousands(mine.live_tokens or 0))
    table.insert(lines, ('conversation  %s: %s'):format(vim.fn.fnamemodify(root, ':~'), held or 'not open yet'))
  end
  local usage = mine and mine.usage
  table.insert(lines, 'last turn     ' .. (type(usage) == 'table' and cost.line(usage) or 'none yet'))
  if type(usage) == 'table' then
    local kept = ('%s in memory, %s from disk'):format(thousands(usage.live or 0), thousands(usage.restored or 0))
    table.insert(lines, '  kept        ' .. kept)
  end
  local queue = status.queue or {}
  table.insert(lines, ('now           %d running, %d waiting'):format(queue.running or 0, queue.waiting or 0))
  local daemon = 'daemon        version %s, process %s, %d connected'
  table.insert(lines, daemon:format(status.version or '?', status.pid or '?', status.clients or 1))
  return lines
end

---@param lines string[]
local function float(lines)
  local buf = api.nvim_create_buf(false, true)
  api.nvim_buf_set_lines(buf, 0, -1, false, lines)
  vim.bo[buf].bufhidden, vim.bo[buf].modifiable = 'wipe', false
  local width = 1
  for _, line in ipairs(lines) do
    width = math.max(width, vim.fn.strdisplaywidth(line))
  end
  width = math.min(width, vim.o.columns - 4)
  local win = api.nvim_open_win(buf, true, {
    relative = 'editor',
    style = 'minimal',
    border = 'rounded',
    title = ' qmlx ',
    width = width,
    height = #lines,
    row = math.max(0, math.floor((vim.o.lines - #lines) / 2) - 2),
    col = math.max(0, math.floor((vim.o.columns - width) / 2)),
  })
  for _, key in ipairs({ 'q', '<Esc>', '<CR>' }) do
    vim.keymap.set('n', key, '<Cmd>close<CR>', { buffer = buf, nowait = true })
  end
  api.nvim_create_autocmd('WinLeave', {
    buffer = buf,
    once = true,
    callback = function()
      pcall(api.nvim_win_close, win, true)
    end,
  })
end

--- Model, conversation, what the last turn cost.
---@param client vim.lsp.Client
---@param bufnr integer
function M.status(client, bufnr)
  clients.request(client, 'qmlx/status', vim.empty_dict(), bufnr, function(status)
    float(lines_of(status, client.root_dir))
  end)
end

---@param turn table
---@return string[]
local function turn_lines(turn)
  local lines = {}
  local function add(text)
    vim.list_extend(lines, vim.split((text:gsub('\r', '')), '\n', { plain = true }))
  end
  local question = vim.trim(turn.question or '')
  local title, more = question:match('^([^\n]*)\n?(.*)$')
  add('## ' .. (title ~= '' and title or '(no text)'))
  if more ~= '' then
    add('')
    add(more)
  end
  add('')
  add(vim.trim(turn.text or ''))
  add('')
  if turn.finish == 'open' then
    add('*running*')
  else
    local what = type(turn.usage) == 'table' and ': ' .. cost.line(turn.usage) or ''
    add(('*%s%s*'):format(turn.finish or '?', what))
  end
  add('')
  return lines
end

--- The conversation of the folder, newest turns last, in qmlx://log.
---@param client vim.lsp.Client
---@param bufnr integer
function M.log(client, bufnr)
  local params = { root = client.root_dir, limit = M.TURNS_MAX }
  clients.request(client, 'qmlx/conversation', params, bufnr, function(found)
    local totals, turns = found.totals or {}, found.turns or {}
    local lines = {
      '# ' .. vim.fn.fnamemodify(found.root or '', ':~'),
      '',
      ('%s turns, %s tokens; shown: %d'):format(thousands(totals.turns or 0), thousands(totals.tokens or 0), #turns),
      '',
    }
    for _, turn in ipairs(turns) do
      vim.list_extend(lines, turn_lines(turn))
    end
    local buf = answer.scratch('qmlx://log')
    vim.bo[buf].modifiable = true
    api.nvim_buf_set_lines(buf, 0, -1, false, lines)
    vim.bo[buf].modifiable, vim.bo[buf].modified = false, false
    local win = answer.show(buf, true)
    api.nvim_win_set_cursor(win, { #lines, 0 })
  end)
end

return M
