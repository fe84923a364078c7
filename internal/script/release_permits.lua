-- KEYS: the slots that are given back, then the slots that the caller keeps, then the queue
--       unless the caller may not touch it
-- ARGV: 1 value  2 how many slots a lease has  3 how many slots the caller keeps
--       4 process, '' if nobody of it waits, '-' if it may not touch the queue
--       then, if somebody enters or leaves the queue: the ticket that enters, or '', how long it
--       counts as alive, in milliseconds, and the tickets that leave
-- Gives back slots that have the value. Then, if any of the slots is free, tells the first live
-- waiter, but not one of the caller's process. A slot that cannot be read, a list for example,
-- is not free.
-- Returns 1 as many slots as a lease has, or more, had the value; 0 fewer. It adds what
-- release.lua adds.
local value, process, place, change, n = ARGV[1], ARGV[4], KEYS[#KEYS], 5, #KEYS
if process ~= '-' then n = n - 1 end

-- MGET does not tell a key of another type from a missing one, and a user may not be allowed
-- to call it. GET does, but only one free slot must be found.
local values, had, mine, v, failed = redis.pcall('MGET', unpack(KEYS, 1, n)), 0, {}, '', nil
for i = 1, n do
  local owner = values[i]
  if not owner and (v or values.err) then owner = redis.pcall('GET', KEYS[i]) end
  if owner == value then
    had = had + 1
    if i <= n - ARGV[3] then mine[#mine + 1] = KEYS[i] end
  elseif not owner then
    v = false
  elseif values.err and type(owner) == 'table' and not string.find(owner.err, 'WRONGTYPE', 1, true) then
    failed = owner
  end
end
if #mine > 0 then
  local deleted = redis.pcall('DEL', unpack(mine))
  if type(deleted) ~= 'number' then
    for i = 1, #mine do redis.pcall('SET', mine[i], value, 'PX', 1) end
    return deleted
  end
  v = false
end
if failed then return failed end
local found = had < tonumber(ARGV[2]) and 0 or 1
-- include next.lua
