-- tell tells the waiters at the head of the queue that they may have the lock called name: the
-- first waiter, which must be alive, and if that is a reader, all live readers before the first
-- live writer. It tells each process once, but not process, the caller's, which learns it from
-- the reply. Returns what release.lua adds to the reply.
local function tell(queue, name, process, now)
  local head, second = waiter(1, queue), waiter(2, queue)
  if string.sub(queue, 50, 50) ~= 'r' then
    if head ~= process then
      redis.pcall('PUBLISH', 'redsync:' .. head, name)
      return 4
    end
    if second ~= '' and second ~= process then return 24 end
    return 8
  end
  local own, others, told = 0, 0, {}
  for n = 1, #queue / 64 do
    local other, deadline = waiter(n, queue)
    local kind = string.sub(queue, 64 * n - 14, 64 * n - 14)
    if deadline > now and kind == ' ' then
      if own == 8 and others == 0 and other ~= process then others = 16 end
      break
    elseif deadline > now and kind == 'r' then
      if other == process then
        own = 8
      elseif not told[other] then
        redis.pcall('PUBLISH', 'redsync:' .. other, name)
        told[other], others = true, 4
      end
    end
  end
  return own + others
end
