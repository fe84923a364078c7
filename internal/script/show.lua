-- cut returns the queue with each deadline that is later than latest set to latest, which is as late as a waiter's deadline
-- can be. A later one shows that this node's clock has been set back: a dead waiter would keep its place until the clock
-- is there again. A waiter that lives keeps its place: it shows its ticket at least twice in the time that is left to it.
-- It cuts the first 1,000 waiters. The next ones are cut when these have gone.
local function cut(queue, latest)
  latest = string.format('%013.0f', latest)
  return string.gsub(sub(queue, 1, 64000), string.rep('.', 64), function(w)
    if lives(w, 1, latest) then return sub(w, 1, 50) .. latest .. '\n' end
  end) .. sub(queue, 64001)
end

-- show returns the queue at key with a ticket in it, whose deadline is latest, the process of the first waiter, and that
-- waiter's deadline. If that is too late, and cuts is true, it cuts the queue. It returns nil and an error if the key cannot be read, or
-- if too many wait: then the queue goes soon, unless they live and show their tickets. It sets nothing else.
local function show(key, ticket, now, latest, cuts)
  local queue = read(key, 1048576) or ''
  if type(queue) == 'table' then return nil, why(queue, key, 'queue') end
  if queue ~= true then queue = living(with(queue, ticket, latest), now) end
  if queue == true or #queue > 1024000 then
    local left, alive = redis.pcall('PTTL', key), 2 * (latest - now)
    if type(left) == 'number' and (left < 0 or left > alive) then redis.pcall('PEXPIRE', key, alive) end
    return nil, why(true, key, 'queue')
  end
  local first, deadline = waiter(1, queue)
  if cuts and deadline > latest then queue, deadline = cut(queue, latest), latest end
  return queue, first, deadline
end
