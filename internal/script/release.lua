-- KEYS: 1 lock  2 queue  3 deadlines, both missing where nobody can queue
-- ARGV: 1 value  2 process  3.. tickets that leave the queue
-- If the lock is free afterwards the first live waiter is told, unless it is of the
-- caller's process. A user that may not do that releases all the same: hence pcall.
-- Returns 1 mine and deleted, 0 missing, 2 another value; 4 more if a waiter was told.
local found = 0
local v = redis.call('GET', KEYS[1])
if v == ARGV[1] then
  redis.call('DEL', KEYS[1])
  found = 1
end
for i = 3, #ARGV do
  redis.pcall('ZREM', KEYS[2], ARGV[i])
  redis.pcall('HDEL', KEYS[3], ARGV[i])
end
if v and found == 0 then return 2 end
if not KEYS[2] then return found end
local head = redis.pcall('ZRANGE', KEYS[2], 0, 0)[1]
if not head then return found end
local t = redis.pcall('TIME')
if t.err then return found end
local now = t[1] * 1000 + math.floor(t[2] / 1000)
repeat
  local deadline = redis.pcall('HGET', KEYS[3], head)
  if type(deadline) == 'string' and tonumber(deadline) > now then break end
  local gone = redis.pcall('ZREM', KEYS[2], head)
  redis.pcall('HDEL', KEYS[3], head)
  if gone ~= 1 then return found end
  head = redis.pcall('ZRANGE', KEYS[2], 0, 0)[1]
until not head
if not head then return found end
local process = string.sub(head, 23, 38)
if process == ARGV[2] then return found end
redis.pcall('PUBLISH', 'redsync:' .. process, KEYS[1])
return found + 4
