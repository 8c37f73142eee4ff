-- Replace the head of a thread if its bytes are the expected ones, and with it change its log and its listings.
-- KEYS: the thread, its posts. ARGV: expected head, mark, life in ms ('' for ever), drop, then fields and values: the
-- head, the newest seq if there are rows, rows, blobs.
local thread, posts = KEYS[1], KEYS[2]
local old = redis.call('HMGET', thread, 'h', 'm', 't', 'e')
if (old[1] or '') ~= ARGV[1] then
  return 0
end

local top = tonumber(old[3]) or 0
local is_moved = (old[2] or '') ~= ARGV[2]
if not is_moved and ARGV[3] == '' and ARGV[4] == '' and not old[4] and #ARGV < 4000 then
  -- The most common swap of all: a row more, and nothing else.
  if ARGV[7] == 't' and tonumber(ARGV[8]) < top then
    ARGV[8] = old[3]
  end
  redis.call('HSET', thread, unpack(ARGV, 5))
  return 1
end

local function words(packed)
  local found, at = {}, 1
  while at <= #packed do
    found[#found + 1], at = struct.unpack('>I4c0', packed, at)
  end
  return found
end

-- All that can fail comes before the first change: a script that fails later is not undone.
local base = string.match(thread, '^[^}]*}:')
local function listings(mark)
  local found, parts = {}, words(mark or '')
  for at = 3, #parts do
    found[base .. 'i' .. parts[2] .. parts[at]] = parts[1] .. string.sub(thread, #base + 2)
  end
  return found, parts[2]
end
local before = listings(old[2])
local after, space = listings(ARGV[2])
local everything, bounds, blobs, consumed = unpack(words(ARGV[4]))

local function chunked(command, key, values, first)
  for at = first, #values, 4000 do
    redis.call(command, key, unpack(values, at, math.min(at + 3999, #values)))
  end
end

-- What is dropped goes first: so a server whose memory is full still lets threads be pruned and deleted. Where nothing
-- is dropped, HSET is first, which such a server refuses while nothing is changed.
if everything == 'everything' then
  redis.call('DEL', thread, posts)
  top = 0
elseif everything then
  local gone = {}
  bounds = words(bounds)
  for at = 1, #bounds, 2 do
    for seq = tonumber(bounds[at]), math.min(tonumber(bounds[at + 1]) - 1, top) do
      gone[#gone + 1] = 'r' .. seq
    end
  end
  for _, blob in ipairs(words(blobs)) do
    gone[#gone + 1] = 'b' .. blob
  end
  chunked('HDEL', thread, gone, 1)
  chunked('HDEL', posts, words(consumed), 1)
end

if ARGV[7] == 't' and tonumber(ARGV[8]) < top then
  ARGV[8] = old[3]
end
chunked('HSET', thread, ARGV, 5)
redis.call('HSET', thread, 'm', ARGV[2])

for key, member in pairs(before) do
  if after[key] ~= member then
    redis.call('ZREM', key, member)
  end
end
for key, member in pairs(after) do
  if before[key] ~= member then
    redis.call('ZADD', key, 0, member)
  end
end
if space then
  redis.call('SADD', base .. 'n', space)
end

if ARGV[3] ~= '' then
  redis.call('HSET', thread, 'e', 1)
  redis.call('PEXPIRE', thread, ARGV[3])
  redis.call('PEXPIRE', posts, ARGV[3])
  redis.call('SETNX', base .. 'x', 1)
elseif old[4] then
  redis.call('HDEL', thread, 'e')
  redis.call('PERSIST', thread)
  redis.call('PERSIST', posts)
end
return 1
