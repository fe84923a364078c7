-- KEYS: 1 lock, then queue and deadlines with a ticket, then fence with a proposal
-- ARGV: 1 value  2 ttl in milliseconds
--       3 ticket, '' for none  4 how long a waiter counts as alive, in milliseconds
--       5 '1': only the first process of the queue is let in
--       6 proposal  7 fence ttl in milliseconds: both only for fencing
-- Puts the ticket in the queue, then sets the lock where it is free. Who is let in
-- stays in the queue until its release. Then raises the fence to the proposal, if that
-- is strictly greater.
-- Returns 0 granted; else in how many milliseconds that may change by itself: when
-- the lock's TTL or the time of who stands before has run out; -1 never. With fencing
-- in an array, with the fence and what was done: 1 the proposal is the fence now,
-- 2 the lock had the value before, 3 both.
local queue, deadlines, fence = nil, nil, KEYS[2]
if ARGV[3] ~= '' then queue, deadlines, fence = KEYS[2], KEYS[3], KEYS[4] end
local register = fence and (redis.call('GET', fence) or '0')

local function answer(wait, done)
  if fence then return {wait, register, done} end
  return wait
end

local now
if queue then
  local t = redis.call('TIME')
  now = t[1] * 1000 + math.floor(t[2] / 1000)
  redis.call('ZADD', queue, 0, ARGV[3])
  redis.call('HSET', deadlines, ARGV[3], string.format('%.0f', now + ARGV[4]))
  for i = 2, 3 do
    if redis.call('PTTL', KEYS[i]) < 2 * ARGV[4] then
      redis.call('PEXPIRE', KEYS[i], 2 * ARGV[4])
    end
  end
end

local v = redis.call('GET', KEYS[1])
local mine = fence and v == ARGV[1]
if v and not mine then
  local ttl = redis.call('PTTL', KEYS[1])
  if ttl < 0 then return answer(-1, 0) end
  return answer(math.max(ttl, 1), 0)
end
if queue and ARGV[5] == '1' and not mine then
  local process = string.sub(ARGV[3], 23, 38)
  while true do
    local head = redis.call('ZRANGE', queue, 0, 0)[1]
    if string.sub(head, 23, 38) == process then break end
    local deadline = redis.call('HGET', deadlines, head)
    if deadline and tonumber(deadline) > now then
      return answer(math.ceil(tonumber(deadline) - now), 0)
    end
    redis.call('ZREM', queue, head)
    redis.call('HDEL', deadlines, head)
  end
end
if not mine then redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2]) end
if not fence then return 0 end

-- Decimals without leading zeros, compared as text: Lua's numbers are exact only
-- below 2^53.
local p, done = ARGV[6], 0
if #p > #register or #p == #register and p > register then
  redis.call('SET', fence, p, 'PX', ARGV[7])
  register, done = p, 1
else
  redis.call('PEXPIRE', fence, ARGV[7])
end
if mine then done = done + 2 end
return answer(0, done)
