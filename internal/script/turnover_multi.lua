-- What release_multi.lua and shorten.lua do: they change the locks, raise the fences,
-- and let the next waiter of each queue go on. KEYS are k locks, then n queues, then the fences if there is
-- a token. The including script has included read.lua, defined
-- unlock, which changes the locks and returns an error or nil, and set:
--   k        how many locks
--   n        how many queues: k, 1 if all locks have one queue, or 0 if the caller may not touch it
--   found    what it returns if nobody is told
--   failed   an error that it returns instead, after all else is done; nil if there is none
--   held     by queue, what holds the lock; nil if the lock is free, or if waiters must look at it again
--   process  the caller's
--   token    '' for none
--   change   the index in ARGV of how long a ticket that enters counts as alive; it comes after the fence ttl
-- With one queue it returns found, to which it adds what release.lua adds. Otherwise see release_multi.lua.
-- include above.lua

-- act changes the locks and the fences. It returns an error if the locks cannot be changed.
local function act()
  local wrong = unlock()
  if wrong or token == '' then return wrong end
  for i = #KEYS - k + 1, #KEYS do
    local register = read(KEYS[i], 64) or '0'
    if type(register) == 'string' and above(token, register) then redis.pcall('SET', KEYS[i], token, 'PX', ARGV[change - 1]) end
  end
end

local alive, queues, waiting = ARGV[change], {}, false
for i = 1, n do
  if alive or not held[i] then
    local queue = read(KEYS[k + i], 1048576) or ''
    if type(queue) == 'string' then queues[i] = queue end
    waiting = waiting or alive or queue ~= ''
  end
end
local t = waiting and redis.pcall('TIME')
if not t or t.err then return act() or failed or found end

-- include queue.lua
-- include writers.lua
-- include tell.lua

local now, general = t[1] * 1000 + math.floor(t[2] / 1000), change + 1 + (ARGV[change + 1] or 0)
local flags, first, others, stores, tells = 0, {}, {}, {}, {}
local at = general + 1 -- the changes of the queue of the name begin there
for i = 1, n do
  local enters, last, before = ARGV[at] or '', at + 1 + (ARGV[at + 1] or 0), queues[i]
  if before then
    local queue, ttl = before, 1
    for j = change + 2, general do queue = without(queue, ARGV[j]) end
    for j = at + 2, last do queue = without(queue, ARGV[j]) end
    if enters ~= '' then queue, ttl = with(queue, enters, now + alive), 2 * alive end
    queue = living(queue, now)
    if queue ~= before then stores[#stores + 1] = {KEYS[k + i], queue, ttl} end
    if queue ~= '' and (not held[i] or freesReaders(before, queue, held[i], now)) then
      flags, tells[i] = tell(queue, process, now) -- 4, 8 and 16 are added up
      if flags % 16 >= 8 then first[#first + 1] = i end
      if flags ~= 8 then others[#others + 1] = i end
    end
  end
  at = last + 1
end
local wrong = act()
if wrong then return wrong end
for _, s in ipairs(stores) do store(redis.pcall, unpack(s)) end
for i = 1, n do
  local name = KEYS[i]
  for _, head in ipairs(tells[i] or {}) do redis.pcall('PUBLISH', 'redsync:' .. head, name) end
end
if failed then return failed end
if n == 1 then return found + flags end
if #first + #others == 0 then return found end
return {found, first, others}
