-- What a release does after it has changed the lock: it raises the fence, lets tickets enter
-- and leave the queue, and tells those who may go on. found is what it has found. v is what the
-- lock holds now, false if it is free.
local process, fence, change = ARGV[2] or '', KEYS[3], 3
if process == '-' then fence = KEYS[2] end
if fence then
  change = 5
  local register, token = redis.pcall('GET', fence) or '0', ARGV[3]
  if type(register) == 'string' and (#token > #register or #token == #register and token > register) then
    redis.pcall('SET', fence, token, 'PX', ARGV[4])
  end
end
local enters = ARGV[change]
if process == '-' or v and not enters then return found end
local before = redis.pcall('GET', KEYS[2]) or ''
if before == '' and not enters or type(before) ~= 'string' then return found end
local t = redis.pcall('TIME')
if t.err then return found end

-- include queue.lua

local now, queue, ttl = t[1] * 1000 + math.floor(t[2] / 1000), before, 1
for i = change + 2, #ARGV do queue = without(queue, ARGV[i]) end
if enters and enters ~= '' then
  local alive = ARGV[change + 1]
  queue, ttl = with(queue, enters, now + alive), 2 * alive
end
queue = living(queue, now)
if queue ~= before then store(redis.pcall, KEYS[2], queue, ttl) end
if queue == '' then return found end
if v then
  -- include writers.lua
  if not freesReaders(before, queue, v, now) then return found end
end
-- include tell.lua
return found + tell(queue, KEYS[1], process, now)
