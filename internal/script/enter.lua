-- KEYS: 1 lock  2 queue  3 deadlines
-- ARGV: 1 value  2 ttl in milliseconds  3 ticket  4 how long a waiter counts as
--       alive, in milliseconds  5 '1': only the first process of the queue is let in
-- Puts the ticket in the queue, then sets the lock where it is free. Who is let in
-- stays in the queue until its release.
-- Returns 0 granted; else in how many milliseconds that may change by itself: when
-- the lock's TTL or the time of who stands before has run out; -1 never.
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
redis.call('ZADD', KEYS[2], 0, ARGV[3])
redis.call('HSET', KEYS[3], ARGV[3], string.format('%.0f', now + ARGV[4]))
for i = 2, 3 do
  if redis.call('PTTL', KEYS[i]) < 2 * ARGV[4] then
    redis.call('PEXPIRE', KEYS[i], 2 * ARGV[4])
  end
end
if redis.call('EXISTS', KEYS[1]) == 1 then
  local ttl = redis.call('PTTL', KEYS[1])
  if ttl < 0 then return -1 end
  return math.max(ttl, 1)
end
if ARGV[5] == '1' then
  local process = string.sub(ARGV[3], 23, 38)
  while true do
    local head = redis.call('ZRANGE', KEYS[2], 0, 0)[1]
    if string.sub(head, 23, 38) == process then break end
    local deadline = redis.call('HGET', KEYS[3], head)
    if deadline and tonumber(deadline) > now then
      return math.ceil(tonumber(deadline) - now)
    end
    redis.call('ZREM', KEYS[2], head)
    redis.call('HDEL', KEYS[3], head)
  end
end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 0
