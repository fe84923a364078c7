-- KEYS: locks   ARGV: 1 value  2 ttl in milliseconds
-- Prolongs all locks if all have the value, else none. Never shortens a TTL: see extend.lua.
-- Returns 1 all mine, 0 some missing, 2 some have another value.
-- include read.lua
local missing, other = false, false
for i = 1, #KEYS do
  local v = read(KEYS[i], most)
  if type(v) == 'table' then return why(v, KEYS[i], 'key') end
  if not v then missing = true elseif v ~= ARGV[1] then other = true end
end
if other then return 2 end
if missing then return 0 end
for i = 1, #KEYS do
  if redis.call('PTTL', KEYS[i]) < tonumber(ARGV[2]) then
    redis.call('PEXPIRE', KEYS[i], ARGV[2])
  end
end
return 1
