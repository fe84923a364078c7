-- KEYS: 1 lock, then the queue unless nobody can queue, then the fence if there is a token
-- ARGV: 1 value; often nothing else
--       2 process, '' if nobody of it waits, '-' if nobody can queue
--       3 token  4 fence ttl in milliseconds: both only for fencing
--       then, if somebody enters or leaves the queue: the ticket that enters, or '',
--       how long it counts as alive, in milliseconds, and the tickets that leave
-- Deletes the lock if it has the value, and raises the fence to the token. If the lock is
-- free afterwards, tells the first live waiter, unless it is of the caller's process. A
-- user that may do no more than delete the lock must still release it: hence pcall.
-- Returns 1 mine and deleted, 0 missing, 2 another value. If the lock is free and
-- somebody waits, adds 4 if a waiter was told, or 8 if the caller's process is first, and
-- then 16 if the next waiter is of another process.
local found, v = 0, redis.call('GET', KEYS[1])
if v == ARGV[1] then
  -- In the plain case one call deletes the lock and looks for a queue: if there is none,
  -- BITOP has no bytes to write, deletes the key and returns 0. If there is one, BITOP
  -- copies it over the lock, without a TTL: then DEL must delete the copy. An error is
  -- not 0 either: no permission, no memory, a key of another type.
  if not ARGV[2] and redis.pcall('BITOP', 'OR', KEYS[1], KEYS[2]) == 0 then return 1 end
  local deleted = redis.pcall('DEL', KEYS[1])
  if deleted ~= 1 then
    redis.call('SET', KEYS[1], ARGV[1], 'PX', 1)
    return deleted
  end
  found = 1
elseif v then
  found = 2
end
local process, fence, change = ARGV[2] or '', KEYS[3], 3
if process == '-' then fence = KEYS[2] end
if fence then
  change = 5
  local register, token = redis.pcall('GET', fence) or '0', ARGV[3]
  if type(register) == 'string' and (#token > #register or #token == #register and token > register) then
    redis.pcall('SET', fence, token, 'PX', ARGV[4])
  end
end
local enters = ARGV[change]
if process == '-' or found == 2 and not enters then return found end
local before = redis.pcall('GET', KEYS[2]) or ''
if before == '' and not enters or type(before) ~= 'string' then return found end
local t = redis.pcall('TIME')
if t.err then return found end

-- include queue.lua

local now, queue, ttl = t[1] * 1000 + math.floor(t[2] / 1000), before, 1
for i = change + 2, #ARGV do queue = without(queue, ARGV[i]) end
if enters and enters ~= '' then
  local alive = ARGV[change + 1]
  queue, ttl = with(queue, enters, now + alive), 2 * alive
end
queue = living(queue, now)
if queue ~= before then store(redis.pcall, KEYS[2], queue, ttl) end
if found == 2 or queue == '' then return found end

local head, second = waiter(1, queue), waiter(2, queue)
if head ~= process then
  redis.pcall('PUBLISH', 'redsync:' .. head, KEYS[1])
  return found + 4
end
if second ~= '' and second ~= process then return found + 24 end
return found + 8
