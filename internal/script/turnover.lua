-- What the release of a lock does after it has changed the lock: raises the fence, and lets the
-- next waiter go on. The script before it has set found and v: see next.lua.
local process, place, fence, change = ARGV[2] or '', KEYS[2], KEYS[3], 3
if process == '-' then fence = KEYS[2] end
if fence then
  change = 5
  local register, token = redis.pcall('GET', fence) or '0', ARGV[3]
  if type(register) == 'string' and (#token > #register or #token == #register and token > register) then
    redis.pcall('SET', fence, token, 'PX', ARGV[4])
  end
end
-- include next.lua
