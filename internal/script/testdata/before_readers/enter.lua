-- KEYS: 1 lock, then the queue if there is a ticket, then the fence if there is a proposal
-- ARGV: 1 value  2 ttl in milliseconds
--       3 ticket, '' for none  4 how long a waiter counts as alive, in milliseconds
--       5 '1': grants only to the first process of the queue
--       6 proposal  7 fence ttl in milliseconds: both only for fencing
-- Puts the ticket in the queue, then sets the lock if it is free. The ticket of a grant
-- stays in the queue until the lock is released. Then raises the fence to the proposal,
-- if that is strictly greater.
-- Returns 0 for a grant. For a refusal it returns in how many milliseconds that may change
-- by itself, because the lock's TTL or the deadline of the first waiter runs out; -1 for
-- never. With fencing it returns an array of this, the fence, and what was done: 1 the
-- proposal is the fence now, 2 the lock had the value before, 3 both.

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
  store(redis.call, KEYS[2], queue, 2 * ARGV[4]) -- it must fail: a waiter that is not stored is never told
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

-- Tokens are decimals without leading zeros. They are compared as text, because Lua's
-- numbers are exact only below 2^53.
local p, done = ARGV[6], 0
if #p > #register or #p == #register and p > register then
  redis.call('SET', fence, p, 'PX', ARGV[7])
  register, done = p, 1
else
  redis.call('PEXPIRE', fence, ARGV[7])
end
if mine then done = done + 2 end
return answer(done)
