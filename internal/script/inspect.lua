-- KEYS: keys of locks or slots, then queues, then registers
-- ARGV: 1 how many of the keys are locks or slots  2 how many are queues
-- Reads them, and changes nothing. Returns an array of four:
--   the time by this node's clock, in milliseconds
--   for each lock two elements: its text, nil if there is none, and its PTTL
--   for each queue the text of the waiters that are not dead
--   for each register its text, nil if there is none, if it has another type, or is no number
-- A reply that is too long would end the connection, which the client needs for its locks. So if
-- there is too much to tell, it returns an error, and also if the user may not ask for lengths: no lock depends on a look.
local locks, queues = tonumber(ARGV[1]), tonumber(ARGV[2])
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
-- include read.lua
-- include queue.lua
local may = redis.pcall('STRLEN', KEYS[1])
if type(may) == 'table' and not find(may.err, 'WRONGTYPE', 1, true) then return may end
local held, waits, registers = {}, {}, {}
for i = 1, locks do
  local text = read(KEYS[i], 262144)
  if type(text) == 'table' or text == true then return why(text, KEYS[i], 'key') end
  held[2 * i - 1] = text
  held[2 * i] = redis.call('PTTL', KEYS[i])
end
for i = locks + 1, locks + queues do
  local queue = read(KEYS[i], 1048576) or ''
  if type(queue) ~= 'string' then return why(queue, KEYS[i], 'queue') end
  local alive = {}
  if #queue % 64 == 0 then
    local time = string.format('%013.0f', now)
    local from = 1 -- the waiters from there to at are alive
    for at = 1, #queue, 64 do
      if not lives(queue, at, time) then
        alive[#alive + 1] = sub(queue, from, at - 1)
        from = at + 64
      end
    end
    alive[#alive + 1] = sub(queue, from)
  end
  waits[i - locks] = table.concat(alive)
end
for i = locks + queues + 1, #KEYS do
  local register = read(KEYS[i], 20)
  registers[i - locks - queues] = type(register) == 'string' and register
end
return {now, held, waits, registers}
