-- KEYS: locks   ARGV: 1 value  2 ttl in milliseconds
-- Does what extend.lua does, and sets missing keys again, unless a key has another value.
-- The caller does not count that as a grant. If the node refuses to set a key, those set
-- before stay: the caller may hold all of them.
-- Returns 1 all mine, 2 some have another value, 3 some were missing and are set again.
-- include read.lua
local missing, other = {}, false
for i = 1, #KEYS do
  local v = read(KEYS[i], most)
  if type(v) == 'table' then return why(v, KEYS[i], 'key') end
  missing[i] = not v
  if v and v ~= ARGV[1] then other = true end
end
if other then return 2 end
local found = 1
for i = 1, #KEYS do
  if missing[i] then
    redis.call('SET', KEYS[i], ARGV[1], 'PX', ARGV[2])
    found = 3
  end
end
for i = 1, #KEYS do
  if not missing[i] and redis.call('PTTL', KEYS[i]) < tonumber(ARGV[2]) then
    redis.call('PEXPIRE', KEYS[i], ARGV[2])
  end
end
return found
