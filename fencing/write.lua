-- KEYS: 1 hash with the fields value and fence, and after a read the fields of read.lua
-- ARGV: 1 token  2 set, delete or check
--       3 for how many milliseconds from now to keep the hash, 0 for ever  4 value
-- Does that if the token is not older than the fence. The token then is the fence. A check
-- does not change how long the hash is kept.
-- Returns the fence.
local token, newest = ARGV[1], redis.call('HGET', KEYS[1], 'fence') or '0'
if string.find(newest, '%D') then
  return redis.error_reply('ERR the field fence is not a token')
end

-- Decimals without leading zeros, compared as text: Lua's numbers are exact only
-- below 2^53.
if #token < #newest or #token == #newest and token < newest then return newest end

-- If the fence is the token of a read of this same hold, it is that of a write from now on.
-- A greater token needs no note: it differs from the field read (see read.lua).
if redis.call('HGET', KEYS[1], 'read') == token then
  redis.call('HSET', KEYS[1], 'written', token)
end

if ARGV[2] == 'set' then
  redis.call('HSET', KEYS[1], 'fence', token, 'value', ARGV[4])
else
  redis.call('HSET', KEYS[1], 'fence', token)
end
if ARGV[2] == 'check' then return token end
if ARGV[2] == 'delete' then redis.call('HDEL', KEYS[1], 'value') end
if ARGV[3] == '0' then
  redis.call('PERSIST', KEYS[1])
else
  redis.call('PEXPIRE', KEYS[1], ARGV[3])
end
return token
