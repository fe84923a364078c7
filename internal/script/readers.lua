-- While readers hold a lock, its key is a text: 'readers' and a newline, then for each reader
-- its value, a space, its deadline and a newline, in the order of the deadlines. A deadline
-- is 13 digits: milliseconds by this node's clock. From then on the reader counts as gone. The
-- key lasts as long as the last of them. A value has no newline. It may have spaces.

-- readersOf returns the text without those who are gone, with no reader if v is missing. It
-- returns nil for a writer's value, such as any that begins like the text and is none.
local function readersOf(v, now)
  if not v then return 'readers\n' end
  if string.sub(v, 1, 8) ~= 'readers\n' or #v == 8 then return nil end
  local find, sub = string.find, string.sub
  local at, gone, last, time = 8, 8, '', string.format('%013.0f', now)
  while at < #v do
    local stop = find(v, '\n', at + 1, true)
    if not stop or stop < at + 15 or sub(v, stop - 14, stop - 14) ~= ' ' then return nil end
    local deadline = sub(v, stop - 13, stop - 1)
    if deadline < last or find(deadline, '%D') then return nil end
    if deadline <= time then gone = stop end
    at, last = stop, deadline
  end
  if gone == 8 then return v end
  return 'readers\n' .. sub(v, gone + 1)
end

-- reader returns where the record of a value begins and ends in a text that readersOf has
-- returned, and its deadline; nil if there is none. The value may be the beginning of another.
local function reader(text, value)
  local at, stop = string.find(text, '\n' .. value .. ' ', 1, true)
  while at and string.sub(text, stop + 14, stop + 14) ~= '\n' do
    at, stop = string.find(text, '\n' .. value .. ' ', at + 1, true)
  end
  if at then return at + 1, stop + 14, tonumber(string.sub(text, stop + 1, stop + 13)) end
end

-- add returns a text with a record in its place.
local function add(text, value, deadline)
  local digits, at = string.format('%013.0f', math.min(deadline, 9999999999999)), #text
  if #text > 8 and string.sub(text, -14, -2) > digits then
    local stop = 8
    repeat
      at = stop
      stop = string.find(text, '\n', at + 1, true)
    until string.sub(text, stop - 13, stop - 1) > digits
  end
  return string.sub(text, 1, at) .. value .. ' ' .. digits .. '\n' .. string.sub(text, at + 1)
end

-- keep sets the key to a text that has a reader. It gives the key the last deadline itself, and
-- not a TTL, which would count from a moment before or after the script has read the clock.
local function keep(key, text)
  redis.call('SET', key, text, 'PXAT', tonumber(string.sub(text, -14, -2)))
end
