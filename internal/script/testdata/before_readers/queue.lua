-- A queue is a text: for each waiter its ticket, a space, its deadline and a newline,
-- 64 bytes in all, in the order of the tickets. The deadline is in milliseconds by this
-- node's clock. From then on the waiter counts as dead, unless it shows itself before.
-- Tickets are 49 digits and colons, because Lua compares by the server's locale, and
-- these have the same order in every locale.

-- with returns the queue with a ticket in its place. A text that is no queue counts as empty.
local function with(queue, ticket, deadline)
  if #queue % 64 ~= 0 then queue = '' end
  local at = #queue - 63 -- a new ticket mostly comes last
  while at > 0 and string.sub(queue, at, at + 48) > ticket do at = at - 64 end
  local rest = string.sub(queue, at + 64)
  if at > 0 and string.sub(queue, at, at + 48) == ticket then at = at - 64 end
  return string.sub(queue, 1, at + 63) .. ticket .. string.format(' %013.0f\n', deadline) .. rest
end

-- without returns the queue without a ticket. The text is a ticket only where a waiter
-- begins.
local function without(queue, ticket)
  local at = string.find(queue, ticket, 1, true)
  while at and at % 64 ~= 1 do at = string.find(queue, ticket, at + 1, true) end
  if not at then return queue end
  return string.sub(queue, 1, at - 1) .. string.sub(queue, at + 64)
end

-- waiter returns the process of the n-th waiter, '' if there is none, and its deadline: 0
-- where that is not all digits (inf and nan are numbers to Lua, and never pass).
local function waiter(n, queue)
  local at = 64 * n - 63
  local deadline = string.sub(queue, at + 50, at + 62)
  return string.sub(queue, at + 22, at + 37), not string.find(deadline, '%D') and tonumber(deadline) or 0
end

-- living returns the queue without the dead waiters at its head.
local function living(queue, now)
  while queue ~= '' and select(2, waiter(1, queue)) <= now do queue = string.sub(queue, 65) end
  return queue
end

-- store sets the queue for ttl milliseconds, or for as long as it would last anyway if that
-- is longer. call is redis.call, or redis.pcall if the script goes on after a failure.
local function store(call, key, queue, ttl)
  if queue == '' then return call('DEL', key) end
  local left = call('PTTL', key)
  if type(left) == 'number' then ttl = math.max(ttl, left) end
  return call('SET', key, queue, 'PX', string.format('%.0f', ttl))
end
