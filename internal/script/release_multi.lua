-- KEYS: k locks, then k queues unless nobody can queue, then k fences if there is a token
-- ARGV: 1 value; often nothing else
--       2 process, '' if nobody of it waits, '-' if nobody can queue
--       3 token, '' for none  4 fence ttl in milliseconds
--       then, if somebody enters or leaves the queues: how long a ticket that enters counts
--       as alive, in milliseconds, and how many tickets leave all queues, and these. Then,
--       if more changes, for each name: the ticket that enters its queue, or '', and how
--       many tickets leave it, and these.
-- Deletes the locks that have the value, and raises each fence to the token. For each name it
-- tells the waiters that may go on, as release.lua does. A user that may do no more than delete
-- the locks must still release them, so the script uses pcall. A lock that cannot be read, a
-- list for example, keeps no other from being released: the script returns the error at its
-- end.
-- Returns 1 all mine and deleted, 0 some missing, 2 some have another value. If waiters may
-- go on, it returns an array of this, the indexes from 1 of the names for which a waiter of
-- the caller's process may, and those for which another process has been told or comes next
-- after the caller's.

local value, process, token, change = ARGV[1], ARGV[2] or '', ARGV[3] or '', 5
local quiet = process == '-'
local groups = 1
if not quiet then groups = groups + 1 end
if token ~= '' then groups = groups + 1 end
local k = #KEYS / groups
local n = quiet and 0 or k

-- include read.lua
-- Mostly all keys have the value, and in the plain case there is no queue. Then MGET, which does not tell a key of another
-- type from a missing one, and which a user may not be allowed to call, reads all keys. In any other case each key is read
-- alone.
local mine, held, found, failed, all, plain = {}, {}, 1, nil, true, #ARGV == 1
for i = 1, k do
  all = all and redis.pcall('STRLEN', KEYS[i]) == #value
  plain = plain and redis.pcall('STRLEN', KEYS[k + i]) == 0
end
local values = all and redis.pcall('MGET', unpack(KEYS, 1, k)) or {}
for i = 1, k do all = all and values[i] == value end
for i = 1, k do
  local v = all and value or read(KEYS[i], most)
  if v == value then
    mine[#mine + 1] = KEYS[i]
  elseif v then
    held[i], found = v, 2
    if type(v) == 'table' and (not failed or string.find(failed.err, 'WRONGTYPE', 1, true)) then failed = why(v, KEYS[i], 'key') end
  elseif found == 1 then
    found = 0
  end
end

local function unlock()
  local deleted = #mine > 0 and redis.pcall('DEL', unpack(mine))
  if type(deleted) ~= 'table' then return nil end
  for i = 1, #mine do redis.pcall('SET', mine[i], value, 'PX', 1) end
  return deleted
end
if all and plain then return unlock() or 1 end
-- include turnover_multi.lua
