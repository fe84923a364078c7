-- KEYS: locks   ARGV: 1 value
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
return 1
