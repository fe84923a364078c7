-- readText returns the text at a key, false if there is none. If it cannot read the key, it returns
-- that error as its second result. If the key has another type, the error says what the key is
-- for, its name, and its type if the user may ask for that. A name is cut after 200 bytes: the
-- client keeps no more than 300 bytes of an error. The library reads the name and the type from
-- the error.
local function readText(key, what)
  local text = redis.pcall('GET', key)
  if type(text) ~= 'table' then return text end
  if not string.find(text.err, 'WRONGTYPE', 1, true) then return nil, text end
  local is = redis.pcall('TYPE', key).ok or 'key of another type'
  if #key > 200 then key = string.sub(key, 1, 200) .. '...' end
  return nil, redis.error_reply('WRONGTYPE the ' .. what .. ' ' .. key .. ' is a ' .. is)
end
