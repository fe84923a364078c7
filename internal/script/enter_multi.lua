-- KEYS: k locks, then k queues if there is a ticket, then k fences if there is a proposal
-- ARGV: as for enter.lua
-- Puts the ticket in all queues. Then sets all locks, if no name keeps the caller back. A name
-- keeps it back if its key has a value, or if the caller must be the first and another process
-- is the first in its queue. But with a proposal, a key that has the caller's value already
-- does not count. The highest fence counts for all names: if the proposal is strictly greater,
-- it becomes the fence of each.
-- An error is no grant, and leaves no lock: if one cannot be set, those set before it are
-- deleted. The ticket may be in some queues then, and some fences may be raised. Both are
-- harmless: a later release takes the ticket out, and a fence that nobody was granted only
-- lets proposals up to it fail.
-- Returns 0 for a grant to a caller without ticket and proposal. Otherwise it returns an array:
-- 0 for a grant, or the number of milliseconds after which the first name that keeps the caller
-- back may stop doing so by itself, -1 for never; the highest fence; what was done, as
-- enter.lua says; and the indexes from 1 of all names that keep the caller back.

local value, ticket, p = ARGV[1], ARGV[3], ARGV[6]
local groups = 1
if ticket ~= '' then groups = groups + 1 end
if p then groups = groups + 1 end
local k = #KEYS / groups
local fences = #KEYS - k -- they are the last k keys

-- setAll sets the locks that have no value in present. It returns true. If it cannot set one,
-- it returns false or an error, and no lock stays. Then the locks set before are deleted. If
-- the user may not delete, they run out at once.
local function setAll(present, ...)
  for i = 1, k do
    local set = present[i] or redis.pcall('SET', KEYS[i], value, 'PX', ARGV[2], ...)
    if not set or set.err then
      for j = 1, i - 1 do
        if not present[j] and redis.pcall('DEL', KEYS[j]) ~= 1 then redis.pcall('SET', KEYS[j], value, 'PX', 1) end
      end
      return set
    end
  end
  return true
end

-- In the plain case the locks are set without reading them. If one is not free, the code below
-- finds out which.
if ticket == '' and not p then
  local set = setAll({}, 'NX')
  if set then return set == true and 0 or set end
end

-- include read.lua
-- include above.lua
local register = '0'
if p then
  for i = fences + 1, #KEYS do
    local r = read(KEYS[i], 64) or '0'
    if type(r) ~= 'string' then return why(r, KEYS[i], 'fencing register') end
    if above(r, register) then register = r end
  end
end
local values, mine, by, first, wait = {}, false, {}, 0, 0
for i = 1, k do
  local v = read(KEYS[i], most) -- MGET would say that a key of another type is missing
  if type(v) == 'table' then return why(v, KEYS[i], 'key') end
  values[i] = v
  if v and p and v == value then
    mine = true
  elseif v then
    by[#by + 1] = i
    if first == 0 then
      first, wait = i, redis.pcall('PTTL', KEYS[i]) -- a user may not be allowed to call it
      if type(wait) ~= 'number' or wait < 0 then wait = -1 else wait = math.max(wait, 1) end
    end
  end
end

if ticket ~= '' then
  -- include queue.lua
  -- include show.lua
  local t = redis.call('TIME')
  local now, queues = t[1] * 1000 + math.floor(t[2] / 1000), {}
  local latest = now + ARGV[4]
  for i = 1, k do
    local queue, head, deadline = show(KEYS[k + i], ticket, now, latest, true)
    if not queue then return head end
    if ARGV[5] == '1' and not values[i] and head ~= string.sub(ticket, 23, 38) then
      by[#by + 1] = i
      if first == 0 or i < first then first, wait = i, deadline - now end
    end
    queues[i] = queue
  end
  for i = 1, k do store(redis.call, KEYS[k + i], queues[i], 2 * ARGV[4]) end
end

if first ~= 0 then return {wait, register, 0, by} end

local done = 0
if mine then done = 2 end
if p and above(p, register) then
  for i = fences + 1, #KEYS do redis.call('SET', KEYS[i], p, 'PX', ARGV[7]) end
  register, done = p, done + 1
elseif p then
  for i = fences + 1, #KEYS do redis.call('PEXPIRE', KEYS[i], ARGV[7]) end
end
local set = setAll(values)
if set ~= true then return set end
return {wait, register, done, by}
