-- Asks a running Neovim: nvim -l nvim_asker.lua SOCKET; each line of its input is a JSON text with a Lua expression, and is
-- answered by one line of JSON, {value = …} or {failed = …}.

local channel = vim.fn.sockconnect('pipe', arg[1], { rpc = true })
for line in io.lines() do
  local code = ('return vim.json.encode({ value = %s })'):format(vim.json.decode(line))
  local ok, answer = pcall(vim.rpcrequest, channel, 'nvim_exec_lua', code, {})
  io.stdout:write(ok and answer or vim.json.encode({ failed = tostring(answer) }), '\n')
  io.stdout:flush()
end
