-- The buffer of answers, qmlx://answer: one section per question or command, growing while the model writes.
-- Must never take the focus, render anything twice, or fail because of somebody's Markdown plugin.
-- Invariant: a section's text is what was streamed, byte for byte but carriage returns; all else is virtual text or
-- its heading.

local api = vim.api
local config = require('qmlx.config')

local M = {}

local NAME = 'qmlx://answer'
local namespace = api.nvim_create_namespace('qmlx.answer')
local HEADING_CHARS_MAX = 200
local WIDTH_MIN = 20 -- cells, to which what is said below an answer is broken at least

local newest = nil ---@type qmlx.Section?
local marks = 0 -- given out so far: a buffer that was wiped out counts its own anew, and a mark would be another's

---@class qmlx.Section
---@field mark integer where its text grows
---@field note? integer what it waits for
---@field empty boolean nothing has come yet
---@field ended boolean

---@return integer # of a mark, in any of the buffers that this becomes
local function next_mark()
  marks = marks + 1
  return marks
end

---@param buf integer
local function keys(buf)
  local function map(key, plug)
    if key then
      vim.keymap.set('n', key, plug, { buffer = buf, remap = true, nowait = true, desc = plug })
    end
  end
  map(config.options.answer.cancel, '<Plug>(qmlx-cancel)')
  map(config.options.answer.close, '<Plug>(qmlx-close)')
end

--- A scratch buffer for Markdown. Some builds of Neovim have no parser for it, and their own file type plugin fails.
---@param name string
---@return integer
function M.scratch(name)
  local buf = vim.fn.bufnr('^' .. vim.fn.escape(name, '[]*?') .. '$')
  if buf ~= -1 and api.nvim_buf_is_loaded(buf) then
    return buf
  end
  buf = buf ~= -1 and buf or api.nvim_create_buf(false, true)
  vim.fn.bufload(buf)
  api.nvim_buf_set_name(buf, name)
  local bo = vim.bo[buf]
  bo.buftype, bo.bufhidden, bo.swapfile, bo.undolevels, bo.modifiable = 'nofile', 'hide', false, -1, false
  if not pcall(api.nvim_set_option_value, 'filetype', 'markdown', { buf = buf }) then
    pcall(api.nvim_set_option_value, 'syntax', 'markdown', { buf = buf })
  end
  keys(buf)
  return buf
end

---@param buf integer
---@param enter boolean
---@return integer # its window in this tab page
function M.show(buf, enter)
  for _, win in ipairs(api.nvim_tabpage_list_wins(0)) do
    if api.nvim_win_get_buf(win) == buf then
      if enter then
        api.nvim_set_current_win(win)
      end
      return win
    end
  end
  local answer = config.options.answer
  local upright = answer.split == 'left' or answer.split == 'right'
  local size = math.max(1, math.floor((upright and vim.o.columns or vim.o.lines) * answer.size))
  local ok, win = pcall(api.nvim_open_win, buf, enter, {
    split = answer.split,
    win = 0,
    [upright and 'width' or 'height'] = size,
  })
  if not ok then -- no room for another window, or the current one cannot be split
    local before = api.nvim_get_current_tabpage()
    vim.cmd.tabedit()
    win = api.nvim_get_current_win()
    api.nvim_win_set_buf(win, buf)
    if not enter then
      api.nvim_set_current_tabpage(before)
    end
  end
  local wo = vim.wo[win][0]
  wo.wrap, wo.linebreak, wo.number, wo.relativenumber, wo.spell = true, true, false, false, false
  wo.signcolumn, wo.foldcolumn, wo.foldenable, wo.list, wo.winfixbuf = 'no', '0', false, false, false
  return win
end

---@return integer
local function buffer()
  return M.scratch(NAME)
end

--- Change the buffer; windows that show its end go on showing it.
---@param buf integer
---@param change fun()
local function changing(buf, change)
  local last = api.nvim_buf_line_count(buf)
  local following = vim.tbl_filter(function(win)
    return api.nvim_win_get_cursor(win)[1] == last
  end, vim.fn.win_findbuf(buf))
  vim.bo[buf].modifiable = true
  local ok, err = pcall(change)
  vim.bo[buf].modifiable, vim.bo[buf].modified = false, false
  last = api.nvim_buf_line_count(buf)
  for _, win in ipairs(following) do
    api.nvim_win_set_cursor(win, { last, 0 })
  end
  if not ok then
    error(err, 0)
  end
end

--- Bring what stands below the last lines into the windows that follow: virtual lines alone move nothing.
---@param buf integer
local function reveal(buf)
  local last = api.nvim_buf_line_count(buf)
  for _, win in ipairs(vim.fn.win_findbuf(buf)) do
    if api.nvim_win_get_cursor(win)[1] == last then
      local top, height = last, api.nvim_win_get_height(win)
      while top > 1 and api.nvim_win_text_height(win, { start_row = top - 2, end_row = last - 1 }).all <= height do
        top = top - 1
      end
      api.nvim_win_call(win, function()
        vim.fn.winrestview({ topline = top })
      end)
    end
  end
end

---@param text string
---@return string # its first line, not too long
local function first_line(text)
  local line = vim.trim(text):match('^[^\r\n]*')
  local cut = vim.fn.strcharlen(line) > HEADING_CHARS_MAX
  local more = cut or #line < #vim.trim(text)
  return (cut and vim.fn.strcharpart(line, 0, HEADING_CHARS_MAX) or line) .. (more and ' …' or '')
end

--- A new section at the end.
---@param title string
---@param about? string which lines it is about
---@return qmlx.Section
function M.begin(title, about)
  local buf = buffer()
  local section = { empty = true, ended = false }
  changing(buf, function()
    local last = api.nvim_buf_line_count(buf)
    local lines = { '## ' .. first_line(title), '' }
    if about and about ~= '' then
      table.insert(lines, 2, ('*%s*'):format(about))
      table.insert(lines, 2, '')
    end
    table.insert(lines, '')
    local untouched = last == 1 and api.nvim_buf_get_lines(buf, 0, 1, false)[1] == ''
    local blank = api.nvim_buf_get_lines(buf, last - 1, last, false)[1] == ''
    if not untouched and not (blank and (not newest or newest.ended)) then
      table.insert(lines, 1, '')
    end
    api.nvim_buf_set_lines(buf, untouched and 0 or last, -1, false, lines)
    local row = api.nvim_buf_line_count(buf) - 1
    section.mark = api.nvim_buf_set_extmark(buf, namespace, row, 0, { id = next_mark(), right_gravity = true })
  end)
  newest = section
  return section
end

---@param section qmlx.Section
---@return integer buf, integer? row, integer? col
local function place(section)
  local buf = buffer()
  local at = api.nvim_buf_get_extmark_by_id(buf, namespace, section.mark, {})
  return buf, at[1], at[2]
end

---@param section qmlx.Section
local function unnote(section)
  if section.note then
    pcall(api.nvim_buf_del_extmark, buffer(), namespace, section.note)
    section.note = nil
  end
end

--- Text has come.
---@param section qmlx.Section
---@param text string
function M.append(section, text)
  local buf, row, col = place(section)
  if text == '' or not row then -- the buffer was wiped out
    return
  end
  unnote(section)
  section.empty = false
  changing(buf, function()
    api.nvim_buf_set_text(buf, row, col, row, col, vim.split(text:gsub('\r', ''), '\n', { plain = true }))
  end)
end

--- Say what it waits for, until text comes.
---@param section qmlx.Section
---@param text string
function M.note(section, text)
  local buf, row = place(section)
  if not row or not section.empty or section.ended then
    return
  end
  section.note = api.nvim_buf_set_extmark(buf, namespace, row, 0, {
    id = section.note or next_mark(),
    virt_text = { { text .. ' …', 'QmlxNote' } },
    virt_text_pos = 'overlay',
  })
end

--- Virtual lines are cut off where their window ends, so a long text is broken before that.
---@param buf integer
---@param text string
---@param highlight string
---@return table # virtual lines
local function wrapped(buf, text, highlight)
  local win = vim.fn.win_findbuf(buf)[1]
  local width = math.max(WIDTH_MIN, win and api.nvim_win_get_width(win) or vim.o.columns)
  local lines, line = {}, ''
  for word in text:gmatch('%S+') do
    if line ~= '' and vim.fn.strdisplaywidth(line .. ' ' .. word) > width then
      table.insert(lines, { { line, highlight } })
      line = ''
    end
    line = line == '' and word or line .. ' ' .. word
  end
  table.insert(lines, { { line, highlight } })
  return lines
end

--- Say how it ended, below its text.
---@param section qmlx.Section
---@param text string
---@param highlight? string
function M.finish(section, text, highlight)
  local buf, row = place(section)
  if not row or section.ended then
    return
  end
  unnote(section)
  section.ended = true
  changing(buf, function()
    -- What ends in a line break has its empty line behind it already.
    local blank = row > 0 and api.nvim_buf_get_lines(buf, row, row + 1, false)[1] == ''
    api.nvim_buf_set_extmark(buf, namespace, blank and row - 1 or row, 0, {
      id = next_mark(),
      virt_lines = wrapped(buf, text, highlight or 'QmlxUsage'),
    })
    if not blank and row == api.nvim_buf_line_count(buf) - 1 then
      api.nvim_buf_set_lines(buf, row + 1, row + 1, false, { '' })
    end
  end)
  reveal(buf)
end

--- Open the answers without going there. `enter` goes there.
---@param enter? boolean
function M.open(enter)
  local buf = buffer()
  local known = #vim.fn.win_findbuf(buf) > 0
  local win = M.show(buf, enter == true)
  if not known then
    api.nvim_win_set_cursor(win, { api.nvim_buf_line_count(buf), 0 })
  end
end

--- Close the window, unless it is the last one.
function M.close()
  local win = api.nvim_get_current_win()
  if #api.nvim_tabpage_list_wins(0) > 1 or #api.nvim_list_tabpages() > 1 then
    pcall(api.nvim_win_close, win, false)
  else
    vim.cmd.enew()
  end
end

return M
