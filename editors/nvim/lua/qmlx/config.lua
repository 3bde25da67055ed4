-- What can be set, and the highlight groups. Settings of the server (`qmlx.inline.maxLines` and so on) are not here:
-- they belong into `vim.lsp.config('qmlx', { settings = { qmlx = … } })`.
-- Must never raise: a mistake is one line, and what was set before stays.

local M = {}

---@class qmlx.Options
---@field inline? qmlx.InlineOptions
---@field answer? qmlx.AnswerOptions

---@class qmlx.InlineOptions
---@field enabled? boolean|fun(bufnr: integer): boolean whether completions are shown while typing
---@field debounce_ms? integer milliseconds without a keystroke before one is asked for (Neovim 0.11 only)

---@class qmlx.AnswerOptions
---@field split? 'below'|'above'|'left'|'right' where answers open
---@field size? number share of the screen that they take, between 0.1 and 0.9
---@field cancel? string|false the key that cancels, in the window of answers
---@field close? string|false the key that closes it

local function is_switch(value)
  return type(value) == 'boolean' or type(value) == 'function'
end

local function is_key(value)
  return value == false or (type(value) == 'string' and value ~= '')
end

-- Section, key, default, test, and what is allowed in words.
local KEYS = {
  { 'inline', 'enabled', true, is_switch, 'true, false or a function of the buffer' },
  {
    'inline',
    'debounce_ms',
    75,
    function(value)
      return type(value) == 'number' and value >= 0 and value <= 5000
    end,
    'milliseconds from 0 to 5000',
  },
  {
    'answer',
    'split',
    'below',
    function(value)
      return vim.tbl_contains({ 'below', 'above', 'left', 'right' }, value)
    end,
    "'below', 'above', 'left' or 'right'",
  },
  {
    'answer',
    'size',
    0.4,
    function(value)
      return type(value) == 'number' and value >= 0.1 and value <= 0.9
    end,
    'a share from 0.1 to 0.9',
  },
  { 'answer', 'cancel', '<C-c>', is_key, 'a key or false' },
  { 'answer', 'close', 'q', is_key, 'a key or false' },
}

---@type table<string, table<string, any>>
M.options = { inline = {}, answer = {} }
for _, key in ipairs(KEYS) do
  M.options[key[1]][key[2]] = key[3]
end

local function known(section, name)
  for _, key in ipairs(KEYS) do
    if key[1] == section and key[2] == name then
      return key
    end
  end
end

---@param section string
---@param name string
---@param value any
---@return string? # what is wrong with it
local function set(section, name, value)
  local key = known(section, name)
  if not key then
    return ('there is no %s.%s'):format(section, tostring(name))
  elseif not key[4](value) then
    return ('%s.%s must be %s'):format(section, name, key[5])
  end
  M.options[section][name] = value
end

--- Change defaults. What is wrong is left out, and said in one line.
---@param given? qmlx.Options
function M.setup(given)
  local wrong = {}
  if given ~= nil and type(given) ~= 'table' then
    given, wrong = {}, { ('it takes a table, not a %s'):format(type(given)) }
  end
  for section, values in vim.spairs(given or {}) do
    if not M.options[section] or type(values) ~= 'table' then
      table.insert(wrong, ('%s is no section (inline, answer)'):format(tostring(section)))
    else
      for name, value in vim.spairs(values) do
        table.insert(wrong, (set(section, name, value))) -- in brackets, for nothing is not nil there
      end
    end
  end
  if #wrong > 0 then
    require('qmlx.client').say(('setup: %s; see :help qmlx-options'):format(table.concat(wrong, ', ')))
  end
end

--- Whether completions are wanted in a buffer.
---@param bufnr integer
---@return boolean
function M.wants_inline(bufnr)
  local enabled = M.options.inline.enabled
  if type(enabled) == 'function' then
    local ok, wanted = pcall(enabled, bufnr)
    return ok and wanted ~= false and wanted ~= nil
  end
  return enabled
end

--- Highlight groups, as defaults: a colour scheme's or a user's own stay.
function M.highlights()
  local ghost = vim.fn.hlexists('ComplHint') == 1 and 'ComplHint' or 'NonText'
  for name, link in pairs({
    QmlxGhost = ghost,
    QmlxNote = 'Comment',
    QmlxUsage = 'Comment',
    QmlxCancelled = 'WarningMsg',
    QmlxFailed = 'ErrorMsg',
  }) do
    vim.api.nvim_set_hl(0, name, { link = link, default = true })
  end
end

return M
