-- KEYS: 1 lock   ARGV: 1 value
-- Returns 1 mine and deleted, 0 missing, 2 another value.
local v = redis.call('GET', KEYS[1])
if not v then return 0 end
if v ~= ARGV[1] then return 2 end
redis.call('DEL', KEYS[1])
return 1
