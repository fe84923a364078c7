-- Sets v to the text at key, which is a lock or a slot, false if there is none. If that cannot be
-- read, the script ends with an error, which names a key of another type as other_type.lua does.
local v = redis.pcall('GET', key)
if type(v) == 'table' then
  -- include other_type.lua
  return select(2, readText(key, 'key'))
end
