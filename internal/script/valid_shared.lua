-- KEYS: 1 lock   ARGV: 1 value
-- Returns 1 mine, as a reader's or as a writer's, 0 missing or other readers only, 2 a writer's.
local v = redis.call('GET', KEYS[1])
if not v then return 0 end
if v == ARGV[1] then return 1 end
local t = redis.call('TIME')
-- include readers.lua
local text = readersOf(v, t[1] * 1000 + math.floor(t[2] / 1000))
if not text then return 2 end
if reader(text, ARGV[1]) then return 1 end
return 0
