-- The end of a release: it changes the lock, lets tickets enter and leave the queue, and tells the waiters that may
-- go on. It decides all this before it changes anything, so that a script that takes long can still be killed. The message
-- is KEYS[1]: a lock, or any slot, which stands for its semaphore. The script before it has set:
--   act      changes the lock; returns an error, or nil
--   found    what the script has found: it is returned, with the result of tell added
--   v        what holds the lock then, false if it is free
--   place the key of the queue
--   process  the caller's, '-' if it may not touch the queue
--   change   the index in ARGV of the ticket that enters; how long that counts as alive, and
--            the tickets that leave, come next
-- A queue that cannot be read, or is too long, stays as it is, and nobody is told.
local enters = ARGV[change]
local before = process ~= '-' and (not v or enters) and (read(place, 1048576) or '')
local t = type(before) == 'string' and (before ~= '' or enters) and redis.pcall('TIME')
if not t or t.err then return act() or found end

-- include queue.lua
-- include writers.lua
-- include tell.lua

local now, queue, ttl = t[1] * 1000 + math.floor(t[2] / 1000), before, 1
for i = change + 2, #ARGV do queue = without(queue, ARGV[i]) end
if enters and enters ~= '' then
  local alive = ARGV[change + 1]
  queue, ttl = with(queue, enters, now + alive), 2 * alive
end
queue = living(queue, now)
local flags, told, name = 0, {}, KEYS[1]
if queue ~= '' and (not v or freesReaders(before, queue, v, now)) then flags, told = tell(queue, process, now) end

local failed = act()
if failed then return failed end
if queue ~= before then store(redis.pcall, place, queue, ttl) end
for _, head in ipairs(told) do redis.pcall('PUBLISH', 'redsync:' .. head, name) end
return found + flags
