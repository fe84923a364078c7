-- The end of a release: lets tickets enter and leave the queue, and tells the waiters that may
-- go on. The message is KEYS[1]: a lock, or any slot, which stands for its semaphore. The script
-- before it has set:
--   found    what the script has found: it is returned, with the result of tell added
--   v        what holds the lock now, false if it is free
--   place    the key of the queue
--   process  the caller's, '-' if it may not touch the queue
--   change   the index in ARGV of the ticket that enters; how long that counts as alive, and
--            the tickets that leave, come next
local enters = ARGV[change]
if process == '-' or v and not enters then return found end
local before = redis.pcall('GET', place) or ''
if before == '' and not enters or type(before) ~= 'string' then return found end
local t = redis.pcall('TIME')
if t.err then return found end

-- include queue.lua

local now, queue, ttl = t[1] * 1000 + math.floor(t[2] / 1000), before, 1
for i = change + 2, #ARGV do queue = without(queue, ARGV[i]) end
if enters and enters ~= '' then
  local alive = ARGV[change + 1]
  queue, ttl = with(queue, enters, now + alive), 2 * alive
end
queue = living(queue, now)
if queue ~= before then store(redis.pcall, place, queue, ttl) end
if queue == '' then return found end
if v then
  -- include writers.lua
  if not freesReaders(before, queue, v, now) then return found end
end
-- include tell.lua
return found + tell(queue, KEYS[1], process, now)
