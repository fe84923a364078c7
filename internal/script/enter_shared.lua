-- KEYS: 1 lock, then the queue unless the user may not touch it, then the fence if there is a
-- proposal
-- ARGV: 1 value  2 ttl in milliseconds
--       3 ticket, '' for none  4 how long a waiter counts as alive, in milliseconds, also without a ticket
--       5 proposal  6 fence ttl in milliseconds: both only for fencing
-- Puts the ticket in the queue. Then adds a reader, unless a writer holds the lock or a
-- waiting writer keeps the reader back. Without a ticket, every live writer in the queue
-- keeps it back; with a ticket, only one of another process that stands before it. The
-- ticket of a grant stays in the queue until the lock is released. Then raises the fence as
-- enter.lua does. If the user may not read the queue, a reader without a ticket is let in
-- without a look at it.
-- Returns 0 for a grant, -2 if the reader was there before, -3 for a grant without a look at
-- the queue. For a refusal it returns the number of milliseconds after which that may end by
-- itself; -1 for never. With fencing it returns an array as enter.lua does: to what was done it
-- adds 4 for a grant without a look at the queue.

local key = KEYS[1]
-- include read.lua
local v = read(key, most)
if type(v) == 'table' or v == true then return why(v, key, 'key') end

local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)

-- The plain case needs none of the functions below: nobody holds the lock or waits for it,
-- and the reader has no ticket.
if not v and #ARGV == 4 and ARGV[3] == '' and KEYS[2] and redis.pcall('STRLEN', KEYS[2]) == 0 then
  local deadline = math.min(now + ARGV[2], 9999999999999)
  local text = 'readers\n' .. ARGV[1] .. string.format(' %013.0f\n', deadline)
  redis.call('SET', KEYS[1], text, 'PXAT', deadline)
  return 0
end

local value, ticket, fence, place = ARGV[1], ARGV[3], ARGV[5] and KEYS[#KEYS], KEYS[2]
if place == fence then place = nil end
local register = fence and read(fence, 64) or '0'
if type(register) ~= 'string' then return why(register, fence, 'fencing register') end

-- include queue.lua
-- include show.lua
-- include readers.lua

local queue, changed, blind, latest = nil, nil, false, now + ARGV[4]
if ticket ~= '' then
  local failed
  queue, failed = show(place, ticket, now, latest)
  if not queue then return failed end
  changed = queue
end

local text, wait = readersOf(v, now), 0
local mine = text and reader(text, value)
if not text then
  wait = redis.call('PTTL', key)
  if wait < 0 then wait = -1 else wait = math.max(wait, 1) end
elseif place and not mine then
  queue = queue or read(place, 1048576) or ''
  if type(queue) == 'table' then blind = not string.find(queue.err, 'WRONGTYPE', 1, true) end
  if type(queue) == 'string' then -- in a key that is no queue, nobody waits
    -- include writers.lua
    local _, deadline = firstWriter(queue, now, ticket ~= '' and string.sub(ticket, 1, 49) or nil)
    if deadline and deadline > latest then
      changed = cut(queue, latest)
      deadline = latest
    end
    if deadline then wait = deadline - now end
  end
end
if wait == 0 and not mine and #text + #value + 15 > most then return why(true, key, 'key') end
if ticket ~= '' then
  store(redis.call, place, changed, 2 * ARGV[4]) -- it must fail: a waiter that is not stored is never told
elseif changed then
  store(redis.pcall, place, changed, 1)
end

local function answer(done)
  if fence then return {wait, register, done} end
  return wait
end

if wait ~= 0 then return answer(0) end
if not mine then keep(KEYS[1], add(text, value, now + ARGV[2]), now) end
if not fence then return mine and -2 or blind and -3 or 0 end

-- include above.lua
local p, done = ARGV[5], 0
if above(p, register) then
  redis.call('SET', fence, p, 'PX', ARGV[6])
  register, done = p, 1
else
  redis.call('PEXPIRE', fence, ARGV[6])
end
if mine then done = done + 2 end
if blind then done = done + 4 end
return answer(done)
