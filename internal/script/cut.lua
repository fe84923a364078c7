-- cut returns the queue with each deadline that is later than latest set to latest, which is as late as a waiter's deadline
-- can be. A later one shows that this node's clock has been set back: a dead waiter would keep its place until the clock
-- is there again. A waiter that lives keeps its place: it shows its ticket at least twice in the time that is left to it.
local function cut(queue, latest)
  return (string.gsub(queue, string.rep('.', 64), function(w)
    if select(2, waiter(1, w)) > latest then return string.sub(w, 1, 50) .. string.format('%013.0f\n', latest) end
  end))
end
