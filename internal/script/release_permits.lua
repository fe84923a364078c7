-- KEYS: the slots to give back, then the slots that the caller keeps, then the queue unless the
--       caller may not touch it
-- ARGV: 1 value  2 how many slots a lease of the caller has  3 how many slots the caller keeps
--       4 process, '' if nobody of it waits, '-' if it may not touch the queue
--       then, if somebody enters or leaves the queue, what release.lua has from ARGV[5] on
-- Deletes the slots to give back that have the value. Tells the first live waiter, unless it is
-- of the caller's process, if a slot of either list is free afterwards, and if the script has
-- deleted a slot or a ticket enters or leaves. Without such a change it tells nobody: the first
-- waiter was told when a slot became free, and may want more slots than are free. A key of
-- another type, a list for example, is not free. A user that may not read a slot must still give
-- back the others: the script returns that error at its end.
-- Returns 1 if at least as many slots of both lists had the value as a lease has, otherwise 0.
-- To that it adds what release.lua adds.
-- For turnover.lua, v is false if some slot is free and something has changed, otherwise ''.
local value, process, token, change = ARGV[1], ARGV[4], '', 5
local n = process == '-' and 0 or 1
local k = #KEYS - n

-- include read.lua
-- include slots.lua

-- read tells a key of another type from a missing one. The loop calls it for each slot for which MGET shows no
-- value, until it finds a free slot. If MGET fails, the loop calls it for each slot.
local values, had, mine, v, failed = slots(k), 0, {}, '', nil
for i = 1, k do
  local owner = values[i]
  if not owner and (v or values.err) then owner = read(KEYS[i], most) end
  if owner == value then
    had = had + 1
    if i <= k - ARGV[3] then mine[#mine + 1] = KEYS[i] end
  elseif not owner then
    v = false
  elseif values.err and type(owner) == 'table' and not string.find(owner.err, 'WRONGTYPE', 1, true) then
    failed = owner
  end
end
if #mine > 0 then v = false end
local found, held = had < tonumber(ARGV[2]) and 0 or 1, {v}
if #mine == 0 and not ARGV[change] then return failed or found end
-- include next.lua
local deleted = #mine > 0 and redis.pcall('DEL', unpack(mine))
if type(deleted) == 'table' then
  for i = 1, #mine do redis.pcall('SET', mine[i], value, 'PX', 1) end
  return deleted
end
-- include turnover.lua
