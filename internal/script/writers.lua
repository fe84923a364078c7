-- This file is about waiting writers, which keep readers back. In the queue a writer is an
-- exclusive waiter: its kind is a space.

-- firstWriter returns the ticket of the first live writer in the queue, and its deadline; nil
-- if there is none. If a reader's ticket is given, only a writer that keeps this reader back
-- counts: a writer of another process that stands before the ticket.
local function firstWriter(queue, now, ticket)
  now = string.format('%013.0f', now)
  for at = 1, #queue, 64 do
    if string.byte(queue, at + 49) == 32 and lives(queue, at, now) then
      local first = sub(queue, at, at + 48)
      if ticket and first >= ticket then return nil end
      local process, deadline = waiter((at + 63) / 64, queue)
      if not (ticket and process == sub(ticket, 23, 38)) then return first, deadline end
    end
  end
end

-- freesReaders reports whether a change of the queue, from before to queue, lets readers enter
-- beside those that hold the lock. It does if v, the text of the lock, begins as the text of
-- readers does, if the first live writer has left the queue, and if a reader leads the queue
-- now.
local function freesReaders(before, queue, v, now)
  if type(v) ~= 'string' or sub(v, 1, 8) ~= 'readers\n' or sub(queue, 50, 50) ~= 'r' then return false end
  local writer = firstWriter(before, now)
  return writer and not find(queue, writer, 1, true)
end
