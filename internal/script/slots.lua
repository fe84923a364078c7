-- slots returns what stands at the first n keys: for each its text, false for none, and true for one that is too long to be
-- the value of a lease. MGET shows a key of another type as missing. A user may not be allowed to call it: then slots
-- returns its error.
local function slots(n)
  local asked, at, values = {}, {}, {}
  for i = 1, n do
    local length = redis.pcall('STRLEN', KEYS[i])
    values[i] = true
    if type(length) ~= 'number' or length <= math.max(4096, #ARGV[1]) then asked[#asked + 1], at[#at + 1] = KEYS[i], i end
  end
  local got = #asked > 0 and redis.pcall('MGET', unpack(asked)) or {}
  if got.err then return got end
  for i = 1, #at do values[at[i]] = got[i] end
  return values
end
