-- What is left of a suggestion, and its pieces: nvim -l nvim_suggestion.lua PLUGIN; ends with 1 and a line if wrong.

package.path = arg[1] .. '/lua/?.lua;' .. package.path
local suggestion = require('qmlx.suggestion')

local wrong = 0
local function is(what, found, wanted)
  if found ~= wanted then
    wrong = wrong + 1
    io.stderr:write(('%s: %s, not %s\n'):format(what, vim.inspect(found), vim.inspect(wanted)))
  end
end

local it = { row = 3, before = '  x = ', after = ' # y', covers = '', text = 'größe + 1', lines = 9 }
local function rest(line, column, changed)
  return suggestion.rest(vim.tbl_extend('force', it, changed or {}), { row = 3, line = line, column = column, lines = 9 })
end

is('nothing typed', rest('  x =  # y', 6), 'größe + 1')
is('typed through', rest('  x = gr # y', 8), 'öße + 1')
is('typed through a letter of two bytes', rest('  x = grö # y', 10), 'ße + 1')
is('typed otherwise', rest('  x = ga # y', 8), nil)
is('typed to its end', rest('  x = größe + 1 # y', 17), nil)
is('deleted into what was there', rest('  x =# y', 5), nil)
is('the cursor moved', rest('  x = gr # y', 7), nil)
is('the text behind changed', rest('  x = gr', 8), nil)
is('another line', suggestion.rest(it, { row = 4, line = '  x =  # y', column = 6, lines = 9 }), nil)
is('lines came or went', suggestion.rest(it, { row = 3, line = '  x =  # y', column = 6, lines = 10 }), nil)
is('the filter agrees', rest('  x = gr # y', 8, { filter = 'größe' }), 'öße + 1')
is('the filter does not', rest('  x = gr # y', 8, { filter = 'other' }), nil)

for text, wanted in pairs({
  ['size + 1'] = 'size',
  [' + 1'] = ' +',
  ['größe_2 = 1'] = 'größe_2',
  ['(a, b)'] = '(',
  ['):\n    return'] = '):',
  ['\n    return a'] = '\n    return',
  ['   '] = '   ',
}) do
  is('word of ' .. text, suggestion.piece(text, 'word'), wanted)
end
is('line', suggestion.piece('a, b):\n  return', 'line'), 'a, b):')
is('the next line', suggestion.piece('\n  return\nx', 'line'), '\n  return')
is('all', suggestion.piece('a\nb'), 'a\nb')

os.exit(wrong == 0 and 0 or 1)
