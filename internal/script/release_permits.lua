-- KEYS: the slots that are given back, then the slots that the caller keeps, then the queue
--       unless the caller may not touch it
-- ARGV: 1 value  2 how many slots the caller keeps
--       3 process, '' if nobody of it waits, '-' if it may not touch the queue
--       then, if somebody enters or leaves the queue: the ticket that enters, or '', how long it
--       counts as alive, in milliseconds, and the tickets that leave
-- Gives back slots that have the value. If it has given back some, or if a ticket enters or
-- leaves, and any of the slots is free then, tells the first live waiter, but not one of the
-- caller's process. Otherwise nothing has changed: who waits was told when the slot became free,
-- and may want more slots than are free.
-- Returns 1 some slot had the value, 0 none. It adds what release.lua adds.
local found, v, process, place, change, n = 0, '', ARGV[3], KEYS[#KEYS], 4, #KEYS
local changed = ARGV[change]
if process ~= '-' then n = n - 1 end
for i = 1, n do
  local owner = redis.pcall('GET', KEYS[i])
  if type(owner) == 'table' and not string.find(owner.err, 'WRONGTYPE', 1, true) then return owner end
  if owner == ARGV[1] then
    found = 1
    if i <= n - ARGV[2] then
      local deleted = redis.pcall('DEL', KEYS[i])
      if deleted ~= 1 then
        redis.call('SET', KEYS[i], ARGV[1], 'PX', 1)
        return deleted
      end
      owner, changed = false, true
    end
  end
  if not owner then v = false end
end
if not changed then return found end
-- include next.lua
