-- The most common swap of all: a row more, a thread listed as it was, and nothing else. One key, so that it can be made
-- while a cluster moves the others of its slot.
-- KEYS: the thread. ARGV: expected head, then fields and values: the head, the newest seq if there are rows, rows, blobs.
-- A head that was emptied, or is gone while there are rows, is damage: nothing is put in its place.
-- Returns 2 if it needs the other script: the thread has a time to live.
local old = redis.call('HMGET', KEYS[1], 'h', 't', 'e')
if (old[1] or '') ~= ARGV[1] or old[1] == '' or (old[2] and not old[1]) then
  return 0
elseif old[3] then
  return 2
end
if ARGV[4] == 't' and old[2] and tonumber(ARGV[5]) < tonumber(old[2]) then
  ARGV[5] = old[2]
end
redis.call('HSET', KEYS[1], unpack(ARGV, 2))
return 1
