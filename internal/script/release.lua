-- KEYS: 1 lock, then queue and deadlines with a process, then fence with a token
-- ARGV: 1 value  2 process, '' where nobody can queue
--       3 token  4 fence ttl in milliseconds: both only for fencing
--       then tickets that leave the queue
-- Raises the fence to the token. If the lock is free afterwards the first live waiter
-- is told, unless it is of the caller's process. A user that may not do that releases
-- all the same: hence pcall.
-- Returns 1 mine and deleted, 0 missing, 2 another value; 4 more if a waiter was told.
local queue, deadlines, fence = nil, nil, KEYS[2]
if ARGV[2] ~= '' then queue, deadlines, fence = KEYS[2], KEYS[3], KEYS[4] end
local tickets = 3
if fence then
  tickets = 5
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
for i = tickets, #ARGV do
  redis.pcall('ZREM', queue, ARGV[i])
  redis.pcall('HDEL', deadlines, ARGV[i])
end
if v and found == 0 then return 2 end
if not queue or redis.pcall('EXISTS', queue) ~= 1 then return found end
local head = redis.pcall('ZRANGE', queue, 0, 0)[1]
if not head then return found end
local t = redis.pcall('TIME')
if t.err then return found end
local now = t[1] * 1000 + math.floor(t[2] / 1000)
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
if process == ARGV[2] then return found end
redis.pcall('PUBLISH', 'redsync:' .. process, KEYS[1])
return found + 4
