-- tell finds the waiters at the head of the queue that may have the lock: the
-- first waiter, which must be alive, and if that is a reader, all live readers before the first
-- live writer. It returns an array: what release.lua adds to the reply, and then whom the script must tell, each process once,
-- but not process, the caller's, which learns it from the reply. A script tells about 1,000 processes, and no more. The
-- others look again by themselves.
local untold = 1000
local function tell(queue, process, now)
  local head, second = waiter(1, queue), waiter(2, queue)
  if sub(queue, 50, 50) ~= 'r' then
    if head ~= process then return {4, head} end
    if second ~= '' and second ~= process then return {24} end
    return {8}
  end
  local own, told, seen = 0, {0}, {}
  now = string.format('%013.0f', now)
  for at = 1, #queue - 63, 64 do
    local kind = string.byte(queue, at + 49)
    if (kind == 32 or kind == 114) and lives(queue, at, now) then
      local other = sub(queue, at + 22, at + 37)
      if kind == 32 then
        if own == 8 and #told == 1 and other ~= process then own = 24 end
        break
      elseif other == process then
        own = 8
      elseif not seen[other] then
        seen[other], told[#told + 1], untold = true, other, untold - 1
        if untold < 1 then break end
      end
    end
  end
  told[1] = #told > 1 and own + 4 or own
  return told
end
