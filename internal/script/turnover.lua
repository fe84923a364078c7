-- The end of a release, after it has changed the locks: it raises the fences, and does what next.lua has decided. The message
-- is the name of a lock, or of any slot, which stands for its semaphore. Besides what next.lua says, the
-- including script has set:
--   token    '' for none
--   found    what it returns if nobody is told
--   failed   an error that it returns instead, after all else is done; nil if there is none
-- With one queue it returns found, to which it adds what release.lua says. Otherwise see there.
if token ~= '' then
  -- include above.lua
  for i = #KEYS - k + 1, #KEYS do
    local register = read(KEYS[i], 64) or '0'
    if type(register) == 'string' and above(token, register) then redis.pcall('SET', KEYS[i], token, 'PX', ARGV[change - 1]) end
  end
end
if not told then return failed or found end
for i = 1, n do
  if queues[i] then put(redis.pcall, KEYS[k + i], queues[i], ttls and ttls[i] or 1) end
  for j = 2, told[i] and #told[i] or 0 do redis.pcall('PUBLISH', 'redsync:' .. told[i][j], KEYS[i]) end
end
if failed then return failed end
if n == 1 then return told[1] and found + told[1][1] or found end
local first, others = {}, {}
for i = 1, n do
  local flags = told[i] and told[i][1] or 8 -- 4, 8 and 16 are added up
  if told[i] and flags % 16 >= 8 then first[#first + 1] = i end
  if flags ~= 8 then others[#others + 1] = i end
end
if #first + #others == 0 then return found end
return {found, first, others}
