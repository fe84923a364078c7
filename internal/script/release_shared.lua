-- KEYS and ARGV as for release.lua
-- Takes a reader out, and deletes the lock if no other is left. If a writer with the value
-- holds the lock, it deletes the lock, too: the downgrade of that writer may not have arrived.
-- The fence and the queue then change as release.lua says.
-- Returns 1 mine and taken out, 0 missing or other readers only, 2 a writer's. It adds what
-- release.lua adds.
local found, key = 0, KEYS[1]
-- include read_lock.lua
if v then
  local text, only = 'readers\n', 'readers\n' .. ARGV[1] .. ' '
  local alone = #v == #only + 14 and string.sub(v, 1, #only) == only and string.find(v, '^%d+\n$', #only + 1)
  if alone or v == ARGV[1] then
    found = 1 -- the plain case needs neither the functions below nor the clock
  else
    -- include readers.lua
    local t = redis.call('TIME')
    local now = t[1] * 1000 + math.floor(t[2] / 1000)
    text = readersOf(v, now)
    local at, stop
    if text then at, stop = reader(text, ARGV[1]) else found = 2 end
    if at then
      found = 1
      text = string.sub(text, 1, at - 1) .. string.sub(text, stop + 1)
      if #text > 8 then keep(KEYS[1], text, now, true) end
    end
  end
  if text and #text == 8 then
    -- If this is all there is to do, one call deletes the lock and looks for a queue: see release.lua.
    if not ARGV[2] and redis.pcall('BITOP', 'OR', KEYS[1], KEYS[2]) == 0 then return found end
    local deleted = redis.pcall('DEL', KEYS[1])
    if deleted ~= 1 then
      redis.call('SET', KEYS[1], v, 'PX', 1)
      return deleted
    end
    v = false
  end
end
-- include turnover.lua
