-- exclusive returns the ticket of the first live exclusive waiter, and its deadline. If a
-- ticket is given, the waiter must stand before it, and be of another process. It returns
-- nil if there is none. Only the kind of an exclusive waiter is a space.
local function exclusive(queue, now, ticket)
  local at = string.find(queue, ' ', 1, true)
  while at do
    if at % 64 == 50 then
      local first = string.sub(queue, at - 49, at - 1)
      if ticket and first >= ticket then return nil end
      local process, deadline = waiter((at + 14) / 64, queue)
      if deadline > now and not (ticket and process == string.sub(ticket, 23, 38)) then return first, deadline end
    end
    at = string.find(queue, ' ', at + 1, true)
  end
end

-- unblocks reports whether v, which holds the lock, begins as the text of readers does, and a
-- change of the queue lets readers go on: the first live exclusive waiter has left it, and a
-- reader leads it.
local function unblocks(before, queue, v, now)
  if type(v) ~= 'string' or string.sub(v, 1, 8) ~= 'readers\n' or string.sub(queue, 50, 50) ~= 'r' then return false end
  local kept = exclusive(before, now)
  return kept and not string.find(queue, kept, 1, true)
end
