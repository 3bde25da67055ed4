-- What configurations and other plugins call: everything here is stable and in `:help qmlx-lua`.

local M = {}

--- Change defaults, at any time; optional. See |qmlx-options|.
---@param options? qmlx.Options
function M.setup(options)
  require('qmlx.config').setup(options)
  if package.loaded['qmlx.inline'] then
    require('qmlx.inline').again()
  end
end

--- Ask about the current buffer's place.
---@param text? string asked for if missing
function M.ask(text)
  require('qmlx.commands').run({ fargs = { 'ask', text }, args = 'ask ' .. (text or ''), range = 0 })
end

--- Accept the completion that is shown, or its next word or line.
---@param piece? 'word'|'line'
---@return boolean # false: nothing is shown, so a key can do what else it does
function M.accept(piece)
  return require('qmlx.inline').accept(piece)
end

--- Hide the completion that is shown.
---@return boolean # whether there was one
function M.dismiss()
  return require('qmlx.inline').dismiss()
end

--- Show another completion, where there are several.
function M.next()
  require('qmlx.inline').next()
end

--- Cancel the questions and commands of this Neovim. What was written so far stays in the conversation.
function M.cancel()
  require('qmlx.jobs').cancel()
end

--- Open the answers; `enter` goes there.
---@param enter? boolean
function M.open(enter)
  require('qmlx.answer').open(enter)
end

--- Close the window of answers.
function M.close()
  require('qmlx.answer').close()
end

--- What goes on, for a status line: "qmlx: answering", "qmlx: 20 read, 2,622 kept", or "".
---@param bufnr? integer
---@return string
function M.status(bufnr)
  return require('qmlx.status').text(bufnr)
end

return M
