-- The end of a release: it lets tickets enter and leave the queue, and tells those who may go
-- on. found is what the release has found, and v what holds KEYS[1] now: false if it is free.
-- place is the queue, process the caller's ('-' if it may not touch the queue), and change the
-- index in ARGV from which on tickets enter and leave.
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
