-- Before a release changes anything, this decides which tickets enter and leave the queues, and which waiters may go on, so
-- that a script that takes long can still be killed. KEYS are k locks, or the slots of a permit, then n queues, then the
-- fences if there is a token. The including script has included read.lua, and set:
--   k        how many locks
--   n        how many queues: k, 1 if all locks have one queue, or 0 if nobody waits, or the caller may not touch it
--   held     by queue, what holds the lock after the release; nil or false if the lock is free then, or if waiters must
--            look at it again
--   process  the caller's
--   change   the index in ARGV of how long a ticket that enters counts as alive; it comes after the fence ttl
-- A queue that cannot be read, or is too long, stays as it is, and nobody is told.
local alive, queues, waiting = ARGV[change], {}, false
for i = 1, n do
  if alive or not held[i] then
    local queue = read(KEYS[k + i], 1048576) or ''
    if type(queue) == 'string' then queues[i] = queue end
    waiting = waiting or alive or queue ~= ''
  end
end
local told, ttls, put -- ttls of the queues that get longer
local t = waiting and redis.pcall('TIME')
if t and not t.err then
  -- include queue.lua
  -- include tell.lua
  told, put = {}, store
  local now, general = t[1] * 1000 + math.floor(t[2] / 1000), change + 1 + (ARGV[change + 1] or 0)
  local at = general + 1 -- the changes of the queue of the name begin there
  for i = 1, n do
    local enters, last, before = ARGV[at] or '', at + 1 + (ARGV[at + 1] or 0), queues[i]
    if before then
      local queue = before
      for j = change + 2, general do queue = without(queue, ARGV[j]) end
      for j = at + 2, last do queue = without(queue, ARGV[j]) end
      if enters ~= '' then
        queue, ttls = with(queue, enters, now + alive), ttls or {}
        ttls[i] = 2 * alive
      end
      queue = living(queue, now)
      queues[i] = queue ~= before and queue
      local free = not held[i]
      if held[i] then
        -- include writers.lua
        free = freesReaders(before, queue, held[i], now)
      end
      if free and queue ~= '' then told[i] = tell(queue, process, now) end
    end
    at = last + 1
  end
end
