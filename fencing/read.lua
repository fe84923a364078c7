-- KEYS: 1 hash with the fields value and fence, and after a read the fields read and
--         written
-- ARGV: 1 token  2 for how many milliseconds from now to keep the hash at least, 0 for
--       ever
-- Reads the value if the token is not older than the newest of a write. The fence then is
-- not older than the token, which refuses older writes.
-- Returns the token and the value; the newest token of a write alone if that is newer.
local token, newest = ARGV[1], redis.call('HGET', KEYS[1], 'fence') or '0'

-- The fence is the newest token of all. A read that raises it stores its token in the field
-- read, too, and the newest token of a write in the field written. A write that raises the
-- fence leaves these fields alone. So if the fence and the field read differ, the fence is
-- the token of a write.
local written = newest
if redis.call('HGET', KEYS[1], 'read') == newest then
  written = redis.call('HGET', KEYS[1], 'written') or newest
end
if string.find(newest .. written, '%D') then
  return redis.error_reply('ERR the field fence or written is not a token')
end

-- As in write.lua.
local function older(a, b) return #a < #b or #a == #b and a < b end
if older(token, written) then return {written} end

local ttl = redis.call('PTTL', KEYS[1]) -- before HSET: -2 if there is no hash, -1 for ever
if older(newest, token) then
  redis.call('HSET', KEYS[1], 'fence', token, 'read', token, 'written', written)
end
if ARGV[2] == '0' then
  redis.call('PERSIST', KEYS[1])
elseif ttl ~= -1 and ttl < tonumber(ARGV[2]) then
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
return {token, redis.call('HGET', KEYS[1], 'value')}
