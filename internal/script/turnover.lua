-- What the release of a lock does: see next.lua. The script before it has set found and v, and defined unlock, which changes the lock.
local process, place, fence, change = ARGV[2] or '', KEYS[2], KEYS[3], 3
if process == '-' then fence = KEYS[2] end
if fence then change = 5 end
-- include above.lua

-- act changes the lock, and raises the fence. It returns an error if the lock cannot be changed.
local function act()
  local failed = unlock()
  if failed or not fence then return failed end
  local register, token = read(fence, 64) or '0', ARGV[3]
  if type(register) == 'string' and above(token, register) then redis.pcall('SET', fence, token, 'PX', ARGV[4]) end
end
-- include next.lua
