-- Replace the head of a thread if its bytes are the expected ones, and with it change its log and its listings.
-- KEYS: the thread, its posts, the namespaces of the shard, the key that exists if threads expire, then the listings that
-- the thread leaves, and those that it enters. ARGV: expected head, life in ms ('' for ever), drop, its namespace ('' if
-- it is known), how many listings it leaves, its member there, its member in the new ones, then fields and values: the
-- head, the newest seq if there are rows, rows, blobs.
-- An empty head, a missing head while there are rows, and a key of another type are replaced only if everything is dropped.
-- Return 2 if the posts are needed too: the thread has a time to live, which is to be removed from both.
local thread, posts = KEYS[1], KEYS[2]
local old = redis.pcall('HMGET', thread, 'h', 't', 'e')
if old.err then
  if ARGV[1] ~= '' or string.sub(ARGV[3], 5, 14) ~= 'everything' then
    return old
  end
  old = {'', false, false}
end
local is_lost = old[1] == '' or (old[2] and not old[1])
if (old[1] or '') ~= ARGV[1] or (is_lost and string.sub(ARGV[3], 5, 14) ~= 'everything') then
  return 0
elseif old[3] and ARGV[2] == '' and posts == thread then
  return 2
end

-- Everything that can fail comes before the first change: a script that fails later is not undone.
local function words(packed)
  local found, at = {}, 1
  while at <= #packed do
    found[#found + 1], at = struct.unpack('>I4c0', packed, at)
  end
  return found
end
local top = tonumber(old[2]) or 0
local everything, bounds, blobs, consumed = unpack(words(ARGV[3]))

local function chunked(command, key, values, first)
  for at = first, #values, 4000 do
    redis.call(command, key, unpack(values, at, math.min(at + 3999, #values)))
  end
end

-- Drop first, so that threads can be pruned and deleted when the server's memory is full. If nothing is dropped, HSET
-- comes first: such a server refuses it, and nothing is changed.
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

if ARGV[10] == 't' and tonumber(ARGV[11]) < top then
  ARGV[11] = old[2]
end
chunked('HSET', thread, ARGV, 8)

local left = tonumber(ARGV[5])
for at = 5, #KEYS do
  if at < 5 + left then
    redis.call('ZREM', KEYS[at], ARGV[6])
  else
    redis.call('ZADD', KEYS[at], 0, ARGV[7])
  end
end
if ARGV[4] ~= '' then
  redis.call('SADD', KEYS[3], ARGV[4])
end

if ARGV[2] ~= '' then
  redis.call('HSET', thread, 'e', 1)
  redis.call('PEXPIRE', thread, ARGV[2])
  redis.call('PEXPIRE', posts, ARGV[2])
  redis.call('SETNX', KEYS[4], 1)
elseif old[3] then
  redis.call('HDEL', thread, 'e')
  redis.call('PERSIST', thread)
  redis.call('PERSIST', posts)
end
return 1
