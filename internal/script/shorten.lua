-- KEYS: k locks, or the slots of a permit, then their queues unless the caller may not touch them:
--       one for each, or one for all, then k fences if there is a token
-- ARGV: 1 value  2 rest: how long the locks may last from now on, in milliseconds, at least 1
--       3 k  4 how many queues  5 process, '' if nobody of it waits
--       6 token, '' for none  7 fence ttl in milliseconds
--       then, if somebody enters or leaves the queues, what release.lua has from ARGV[5] on
-- Lets the locks that have the value last for the rest and no longer. It never makes a lock last
-- longer, and never deletes one. The fences and the queues then change as release.lua says. A waiter
-- knows how long a lock lasts from an earlier answer. So the script tells it to ask again if the lock
-- lasts shorter now. It also tells the first waiter if a ticket enters or leaves, because that waiter may
-- not have asked yet.
-- A lock that fails keeps no other from being shortened: the script returns that error at its end.
-- Returns 1 all mine, 0 some missing, 2 some have another value. To that it adds what release.lua adds
-- if there is one queue. Otherwise, if waiters are told, it returns an array as release.lua does.
local value, rest, k, n = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local process, token, change = ARGV[5], ARGV[6], 8
if not (rest >= 1) then return redis.error_reply('ERR the rest is less than 1 ms') end

-- include read.lua
local held, found, failed, looks, shorter = {}, 1, nil, false, {}
for i = 1, k do
  local v = read(KEYS[i], most)
  local free = not v
  if v == value then
    local left = redis.pcall('PTTL', KEYS[i])
    if type(left) ~= 'number' then
      failed = left
    elseif left > rest or left == -1 then
      shorter[i], free = true, true
    end
    free = free or ARGV[change]
  elseif v then
    found = 2
    if type(v) == 'table' and (not failed or string.find(failed.err, 'WRONGTYPE', 1, true)) then failed = why(v, KEYS[i], 'key') end
  elseif found == 1 then
    found = 0
  end
  if not free then held[i] = v end
  looks = looks or free
end
if n < k and looks then held = {} end -- one queue for all

-- include next.lua
for i in pairs(shorter) do
  local left = redis.pcall('PEXPIRE', KEYS[i], ARGV[2])
  if type(left) ~= 'number' then failed = left end
end
-- include turnover.lua
