-- KEYS: 1 lock, then for a downgrade the queue unless the user may not touch it
-- ARGV: 1 value  2 ttl in milliseconds  3 '1': heals
--       for a downgrade then the process, '' for none, and the tickets that leave the queue
-- Raises the deadline of a reader, and never lowers it: see extend.lua. If it heals, it adds
-- a reader that is missing; the caller does not count that as a grant.
-- If a writer with the value holds the lock, it makes the writer a reader: the downgrade. The
-- reader then lasts at least as long as the writer would have. The tickets leave the queue, and
-- if a reader leads the queue then, the script tells the readers that may enter, as tell.lua
-- says.
-- Returns 1 mine, 0 missing or other readers only, 2 a writer's, 3 was missing and is added.
-- For a downgrade it adds what release.lua adds.
local value, key = ARGV[1], KEYS[1]
-- include read.lua
local v = read(key, most)
if type(v) == 'table' or v == true then return why(v, key, 'key') end
local heals = ARGV[3] == '1'
if not v and not heals then return 0 end
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local deadline = now + ARGV[2]

-- include readers.lua

if v == value then
  deadline = math.max(deadline, now + redis.call('PTTL', KEYS[1]))
  local before = KEYS[2] and read(KEYS[2], 1048576) or ''
  if type(before) ~= 'string' then before = '' end
  -- include queue.lua
  -- include tell.lua
  local queue, told = before, {0}
  for i = 5, #ARGV do queue = without(queue, ARGV[i]) end
  queue = living(queue, now)
  if string.sub(queue, 50, 50) == 'r' then told = tell(queue, ARGV[4] or '', now) end
  keep(KEYS[1], add('readers\n', value, deadline), now, true)
  if queue ~= before then store(redis.pcall, KEYS[2], queue, 1) end
  for i = 2, #told do redis.pcall('PUBLISH', 'redsync:' .. told[i], key) end
  return 1 + told[1]
end

local text = readersOf(v, now)
if not text then return 2 end
local at, stop, old = reader(text, value)
if not at then
  if not heals then return 0 end
  if #text + #value + 15 > most then return why(true, key, 'key') end
  keep(KEYS[1], add(text, value, deadline), now)
  return 3
end
if old < deadline then
  keep(KEYS[1], add(string.sub(text, 1, at - 1) .. string.sub(text, stop + 1), value, deadline), now, true)
end
return 1
