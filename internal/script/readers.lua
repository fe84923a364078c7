-- While readers hold a lock, its key is a text: 'readers' and a newline, then for each reader
-- a record: its value, a space, its deadline and a newline. The records are in the order of
-- the deadlines. A deadline is 13 digits: milliseconds by this node's clock. From then on the
-- reader counts as gone. The key lasts until the last deadline. A value has no newline, but it
-- may have spaces.

-- deadlineOf returns the digits of the deadline in the record that ends at stop, nil if there
-- are none. A stop below 15 is in the first line, or right after it.
local function deadlineOf(text, stop)
  if stop < 15 or sub(text, stop - 14, stop - 14) ~= ' ' then return nil end
  local digits = sub(text, stop - 13, stop - 1)
  if not find(digits, '%D') then return digits end
end

-- readersOf returns the text v without the readers that are gone. If v is missing, it returns
-- a text with no reader. It returns nil for a writer's value, even for one that begins as the
-- text of readers does. To be cheap beside many readers, it looks only at the first records,
-- up to one whose reader is not gone, and at the last.
local function readersOf(v, now)
  if not v then return 'readers\n' end
  if sub(v, 1, 8) ~= 'readers\n' then return nil end
  local at, last, time = 9, deadlineOf(v, #v), string.format('%013.0f', now)
  if not last or sub(v, -1) ~= '\n' then return nil end
  while at < #v do
    local stop = find(v, '\n', at)
    local digits = stop == #v and last or deadlineOf(v, stop)
    if not digits or digits > last then return nil end
    if digits > time then break end
    at = stop + 1
  end
  if at == 9 then return v end
  return 'readers\n' .. sub(v, at)
end

-- reader returns where the record of a value begins and ends in a text that readersOf has
-- returned, and its deadline; nil if there is none. The value of another reader may begin with
-- this value and a space, so it looks for the whole record.
local function reader(text, value)
  local record = '\n' .. value .. ' '
  local at, stop = find(text, record, 1, true)
  while at do
    local digits = sub(text, stop + 14, stop + 14) == '\n' and deadlineOf(text, stop + 14)
    if digits then return at + 1, stop + 14, tonumber(digits) end
    at, stop = find(text, record, at + 1, true)
  end
end

-- add returns a text with one more record, in its place.
local function add(text, value, deadline)
  local digits, at = string.format('%013.0f', math.min(deadline, 9999999999999)), #text
  if #text > 8 and sub(text, -14, -2) > digits then
    local stop = find(text, '\n', 9)
    at = 8
    while sub(text, stop - 13, stop - 1) <= digits do
      at = stop
      stop = find(text, '\n', at + 1)
    end
  end
  return sub(text, 1, at) .. value .. ' ' .. digits .. '\n' .. sub(text, at + 1)
end

-- keep sets the key to a text that has a reader, and makes it expire at the last deadline. It
-- sets no TTL, because that would count from a moment before or after the script has read the
-- clock. A text whose last deadline cannot be read, or has passed, keeps the TTL of the key.
-- fits says that the text needs no more memory than the key has; a writer that becomes a reader
-- needs a few bytes. A server without memory then sets it, too: it refuses SET only as long as
-- the script has written nothing, and PEXPIRE needs no memory.
local function keep(key, text, now, fits)
  local digits = deadlineOf(text, #text)
  if digits and tonumber(digits) > now then
    if fits then
      if redis.pcall('SET', key, text, 'PXAT', tonumber(digits)).ok then return end
      redis.pcall('PEXPIRE', key, digits - now)
    end
    redis.call('SET', key, text, 'PXAT', tonumber(digits))
  else
    redis.call('SET', key, text, 'KEEPTTL')
  end
end
