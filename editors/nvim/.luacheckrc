-- For `luacheck editors/nvim`.
std = 'luajit'
cache = false
max_line_length = 120
read_globals = { 'vim' }
globals = { 'vim.g', 'vim.b', 'vim.o', 'vim.go', 'vim.bo', 'vim.wo' }
