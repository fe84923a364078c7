-- KEYS: the slots in the order of preference, then the queue if there is a ticket
-- ARGV: 1 value  2 ttl in milliseconds  3 how many slots are wanted
--       then, if there is a ticket: 4 ticket  5 how long a waiter counts as alive, in
--       milliseconds  6 '1': grants only to the first process of the queue
-- Puts the ticket in the queue, then takes the first free slots, as many as are wanted, or
-- none. The ticket of a grant stays in the queue until a release takes it out.
-- Without a ticket, it returns the index from 0 of a single slot that is granted. Otherwise it
-- returns an array: 1 granted, 2 the value had slots before, 0 refused; for a refusal in how
-- many milliseconds that may change by itself, -1 for never, else 0; the indexes from 0 of the
-- slots that are granted or were there; and those of the slots that are free and not granted.
-- A refusal because of the queue does not say these.
local value, wanted, ticket, n = ARGV[1], tonumber(ARGV[3]), ARGV[4], #KEYS
if ticket then n = n - 1 end

if ticket then
  -- include queue.lua
  local t = redis.call('TIME')
  local now = t[1] * 1000 + math.floor(t[2] / 1000)
  local queue = living(with(redis.call('GET', KEYS[n + 1]) or '', ticket, now + ARGV[5]), now)
  store(redis.call, KEYS[n + 1], queue, 2 * ARGV[5]) -- it must fail: a waiter that is not stored is never told
  local first, deadline = waiter(1, queue)
  if ARGV[6] == '1' and first ~= string.sub(ticket, 23, 38) then return {0, deadline - now, {}, {}} end
end

-- In the plain case the preferred slot is free. Nothing else is read then.
if wanted == 1 and not ticket and redis.call('SET', KEYS[1], value, 'NX', 'PX', ARGV[2]) then return 0 end

local values, mine, free, missing = redis.call('MGET', unpack(KEYS, 1, n)), {}, {}, {}
for i = 1, n do
  if values[i] == value then
    mine[#mine + 1] = i - 1
  elseif not values[i] then
    free[#free + 1] = i - 1
    missing[#free] = KEYS[i]
  end
end
if #mine > 0 then return {2, 0, mine, {}} end

-- MGET says that a key of another type is missing. Such a slot is taken.
if #free > 0 and redis.call('EXISTS', unpack(missing)) > 0 then
  for at = #free, 1, -1 do
    if redis.call('EXISTS', missing[at]) == 1 then table.remove(free, at) end
  end
end

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
