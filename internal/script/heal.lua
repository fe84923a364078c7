-- KEYS: 1 lock   ARGV: 1 value  2 ttl in milliseconds
-- Does what extend does, and sets a missing key again. The caller does not count that as a grant.
-- Returns 1 mine, 2 another value, 3 was missing and is set again.
-- include read.lua
local v = read(KEYS[1], most)
if type(v) == 'table' then return why(v, KEYS[1], 'key') end
if not v then
  redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
  return 3
end
if v ~= ARGV[1] then return 2 end
if redis.call('PTTL', KEYS[1]) < tonumber(ARGV[2]) then
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
return 1
