-- readText returns the text at a key beside the lock, false if there is none. If it cannot read the
-- key, it returns that error as its second result. If the key has another type, the error says
-- what the key is for, its name, and its type if the user may ask for that.
local function readText(key, what)
  local text = redis.pcall('GET', key)
  if type(text) ~= 'table' then return text end
  if not string.find(text.err, 'WRONGTYPE', 1, true) then return nil, text end
  local is = redis.pcall('TYPE', key).ok or 'key of another type'
  return nil, redis.error_reply('WRONGTYPE the ' .. what .. ' ' .. key .. ' is a ' .. is)
end
