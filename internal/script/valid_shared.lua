-- KEYS: 1 lock   ARGV: 1 value
-- Returns 1 if a reader or a writer has the value, 0 if nobody or only other readers hold the
-- lock, 2 if a writer with another value holds it.
-- include read.lua
local v = read(KEYS[1], most)
if type(v) == 'table' or v == true then return why(v, KEYS[1], 'key') end
if not v then return 0 end
if v == ARGV[1] then return 1 end
local t = redis.call('TIME')
-- include readers.lua
local text = readersOf(v, t[1] * 1000 + math.floor(t[2] / 1000))
if not text then return 2 end
if reader(text, ARGV[1]) then return 1 end
return 0
