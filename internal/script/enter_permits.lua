-- KEYS: the slots in the caller's order, then the queue if there is a ticket
-- ARGV: 1 value  2 ttl in milliseconds  3 how many slots are wanted
--       then, if there is a ticket: 4 ticket  5 how long a waiter counts as alive, in
--       milliseconds  6 '1': grants only if the first in the queue is of the ticket's process
-- Puts the ticket in the queue, where it stays until a release takes it out. Then sets the
-- first free slots to the value: as many as are wanted, or none. If slots have the value
-- already, sets no others.
-- If it has granted a single slot without a ticket, it returns the index of that slot.
-- Otherwise returns an array of four:
--   1 granted, 2 slots had the value already, 0 refused
--   of a refusal: after how many milliseconds it may end by itself, -1 for never; otherwise 0
--   the indexes of the slots that are granted, or had the value already
--   the indexes of the free slots that are not granted; none if slots had the value already, or
--   if the queue was the reason to refuse, because then no slot was read
-- Indexes are those of the slots in KEYS, but begin with 0.
local value, wanted, ticket, n = ARGV[1], tonumber(ARGV[3]), ARGV[4], #KEYS
if ticket then n = n - 1 end

-- In the plain case the first slot is free. Then this is the only command.
if wanted == 1 and not ticket and redis.call('SET', KEYS[1], value, 'NX', 'PX', ARGV[2]) then return 0 end

-- include read.lua
-- include slots.lua
local keepTicket = function() end
if ticket then
  -- include queue.lua
  -- include show.lua
  local t = redis.call('TIME')
  local now = t[1] * 1000 + math.floor(t[2] / 1000)
  local queue, first, deadline = show(KEYS[n + 1], ticket, now, now + ARGV[5], true)
  if not queue then return first end
  keepTicket = function() store(redis.call, KEYS[n + 1], queue, 2 * ARGV[5]) end -- it must fail: a waiter that is not stored is never told
  if ARGV[6] == '1' and first ~= string.sub(ticket, 23, 38) then
    keepTicket()
    return {0, deadline - now, {}, {}}
  end
end

local values, mine, free, missing = slots(n), {}, {}, {}
keepTicket()
if values.err then return values end
for i = 1, n do
  if values[i] == value then
    mine[#mine + 1] = i - 1
  elseif not values[i] then
    free[#free + 1] = i - 1
    missing[#free] = KEYS[i]
  end
end
if #mine > 0 then return {2, 0, mine, {}} end

-- MGET shows a key of another type, a list for example, as missing. Such a slot is not free. If the
-- other slots are fewer than wanted, waiting is of no use.
local lists, aList = 0, nil
if #free > 0 and redis.call('EXISTS', unpack(missing)) > 0 then
  for at = #free, 1, -1 do
    if redis.call('EXISTS', missing[at]) == 1 then
      lists = lists + 1
      if not aList or missing[at] < aList then aList = missing[at] end
      table.remove(free, at)
    end
  end
end
if n - lists < wanted then return why(redis.pcall('GET', aList), aList, 'key') end

if #free >= wanted then
  local taken, rest = {}, {}
  for at, i in ipairs(free) do
    if at <= wanted then
      redis.call('SET', KEYS[i + 1], value, 'PX', ARGV[2])
      taken[at] = i
    else
      rest[at - wanted] = i
    end
  end
  if wanted == 1 and not ticket then return taken[1] end
  return {1, 0, taken, rest}
end

local wait = -1
for i = 1, n do
  local left = ticket and values[i] and redis.call('PTTL', KEYS[i]) or -1
  if left >= 0 and (wait < 0 or left < wait) then wait = math.max(left, 1) end
end
return {0, wait, {}, free}
