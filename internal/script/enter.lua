-- KEYS: 1 lock, then queue with a ticket, then fence with a proposal
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

local ticket, fence = ARGV[3], KEYS[2]
if ticket ~= '' then fence = KEYS[3] end
local register = fence and (redis.call('GET', fence) or '0')
local v = redis.call('GET', KEYS[1])
local mine = fence and v == ARGV[1]

local wait = 0
if v and not mine then
  wait = redis.call('PTTL', KEYS[1])
  if wait < 0 then wait = -1 else wait = math.max(wait, 1) end
end
if ticket ~= '' then
  -- include queue.lua
  local t = redis.call('TIME')
  local now = t[1] * 1000 + math.floor(t[2] / 1000)
  local queue = living(with(redis.call('GET', KEYS[2]) or '', ticket, now + ARGV[4]), now)
  store(KEYS[2], queue, 2 * ARGV[4])
  local first, deadline = waiter(1, queue)
  if ARGV[5] == '1' and not v and first ~= string.sub(ticket, 23, 38) then wait = deadline - now end
end

local function answer(done)
  if fence then return {wait, register, done} end
  return wait
end

if wait ~= 0 then return answer(0) end
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
return answer(done)
