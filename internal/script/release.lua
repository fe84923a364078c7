-- KEYS: 1 lock, then queue and deadlines with a process, then fence with a token
-- ARGV: 1 value  2 process, '' where nobody can queue
--       3 token  4 fence ttl in milliseconds: both only for fencing
--       then, where somebody enters or leaves the queue: the ticket that enters, or '',
--       how long it counts as alive, in milliseconds, and the tickets that leave
-- Raises the fence to the token. If the lock is free afterwards the first live waiter
-- is told, unless it is of the caller's process. A user that may not do that releases
-- all the same: hence pcall.
-- Returns 1 mine and deleted, 0 missing, 2 another value. If the lock is free and
-- somebody waits, 4 more if a waiter was told, or 8 if the caller's process is first, and
-- then 16 if the next one is of another.
local queue, deadlines, fence = nil, nil, KEYS[2]
if ARGV[2] ~= '' then queue, deadlines, fence = KEYS[2], KEYS[3], KEYS[4] end
local enters = 3
if fence then
  enters = 5
  local register, token = redis.pcall('GET', fence) or '0', ARGV[3]
  if type(register) == 'string' and (#token > #register or #token == #register and token > register) then
    redis.pcall('SET', fence, token, 'PX', ARGV[4])
  end
end
local found = 0
local v = redis.call('GET', KEYS[1])
if v == ARGV[1] then
  redis.call('DEL', KEYS[1])
  found = 1
end
for i = enters + 2, #ARGV do
  redis.pcall('ZREM', queue, ARGV[i])
  redis.pcall('HDEL', deadlines, ARGV[i])
end
local ticket = ARGV[enters] or ''
if ticket == '' then
  if v and found == 0 then return 2 end
  if not queue or redis.pcall('EXISTS', queue) ~= 1 then return found end
end
local t = redis.pcall('TIME')
if t.err then return found end
local now = t[1] * 1000 + math.floor(t[2] / 1000)
if ticket ~= '' then
  local alive = ARGV[enters + 1]
  redis.pcall('ZADD', queue, 0, ticket)
  redis.pcall('HSET', deadlines, ticket, string.format('%.0f', now + alive))
  for i = 2, 3 do
    local ttl = redis.pcall('PTTL', KEYS[i])
    if type(ttl) == 'number' and ttl < 2 * alive then redis.pcall('PEXPIRE', KEYS[i], 2 * alive) end
  end
  if v and found == 0 then return 2 end
end
local head = redis.pcall('ZRANGE', queue, 0, 0)[1]
if not head then return found end
repeat
  local deadline = redis.pcall('HGET', deadlines, head)
  if type(deadline) == 'string' and tonumber(deadline) > now then break end
  local gone = redis.pcall('ZREM', queue, head)
  redis.pcall('HDEL', deadlines, head)
  if gone ~= 1 then return found end
  head = redis.pcall('ZRANGE', queue, 0, 0)[1]
until not head
if not head then return found end
local process = string.sub(head, 23, 38)
if process == ARGV[2] then
  local second = redis.pcall('ZRANGE', queue, 1, 1)[1]
  if second and string.sub(second, 23, 38) ~= process then return found + 24 end
  return found + 8
end
redis.pcall('PUBLISH', 'redsync:' .. process, KEYS[1])
return found + 4
