-- A script reads at most 1 MiB from keys, or twice what it writes, because every client of the node waits for it: 262,144 bytes from the key of a lock,
-- a queue of 16,000 waiters, 64 bytes from a register. It knows the length of a text before it reads it. A user who may not
-- call STRLEN has the text read first.
local room, most, sub, find = 1048576, 262144, string.sub, string.find
if #ARGV[1] > 2000 then room, most = math.max(room, 2 * #KEYS * #ARGV[1]), math.max(most, #ARGV[1]) end

-- read returns the text at a key; false if there is none, true if it is longer than limit, and an error if the key has
-- another type or the user may not read it.
local function read(key, limit)
  if limit > room then limit = room end
  local length = redis.pcall('STRLEN', key)
  if type(length) == 'number' and length > limit then return true end
  local text = redis.pcall('GET', key)
  if type(text) == 'string' then
    if #text > limit then return true end
    room = room - #text
  end
  return text
end

-- why returns the error of a script for what read has returned in place of a text. It says what the key is for, its name,
-- and its type if the user may ask for that. A name is cut after 200 bytes: the client keeps no more than 300 bytes of an
-- error. The library reads the name and the type from the error. A register that is too long is as useless as
-- a list. The key of a lock or a queue may be shorter soon.
local function why(text, key, what)
  local is, begins = 'string that is too long', what == 'fencing register' and 'WRONGTYPE' or 'ERR'
  if text ~= true then
    if not find(text.err, 'WRONGTYPE', 1, true) then return text end
    is, begins = redis.pcall('TYPE', key).ok or 'key of another type', 'WRONGTYPE'
  end
  if #key > 200 then key = sub(key, 1, 200) .. '...' end
  return redis.error_reply(begins .. ' the ' .. what .. ' ' .. key .. ' is a ' .. is)
end
