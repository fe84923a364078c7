-- KEYS and ARGV as for release.lua
-- Takes a reader out, and deletes the lock if no other is left. If a writer with the value
-- holds the lock, it deletes the lock, too: the downgrade of that writer may not have arrived.
-- The fence and the queue then change as release.lua says.
-- Returns 1 mine and taken out, 0 missing or other readers only, 2 a writer's. It adds what
-- release.lua adds.
local found, key, value = 0, KEYS[1], ARGV[1]
-- include read.lua
local v = read(key, most)
if type(v) == 'table' or v == true then return why(v, key, 'key') end
local was, text, now, at = v, 'readers\n', nil, nil
-- include readers.lua
if v then
  local only = 'readers\n' .. value .. ' '
  local alone = #v == #only + 14 and string.sub(v, 1, #only) == only and string.find(v, '^%d+\n$', #only + 1)
  if alone or v == value then
    found = 1 -- the plain case needs no clock
  else
    local t, stop = redis.call('TIME'), nil
    now = t[1] * 1000 + math.floor(t[2] / 1000)
    text = readersOf(v, now)
    if text then at, stop = reader(text, value) else found = 2 end
    if at then
      found = 1
      text = string.sub(text, 1, at - 1) .. string.sub(text, stop + 1)
    end
  end
  if text and #text == 8 then
    -- If this is all there is to do, the release ends here: see release.lua.
    if not ARGV[2] and redis.pcall('STRLEN', KEYS[2]) == 0 and redis.pcall('DEL', key) == 1 then return found end
    v = false
  end
end
local process, token, change, k, held, failed = ARGV[2], ARGV[3] or '', 5, 1, {v}, nil
local n = process == '-' and 0 or 1
-- include next.lua
if at and #text > 8 then keep(key, text, now, true) end
if was and text and #text == 8 then
  local deleted = redis.pcall('DEL', key)
  if deleted ~= 1 then
    redis.call('SET', key, was, 'PX', 1)
    return deleted
  end
end
-- include turnover.lua
