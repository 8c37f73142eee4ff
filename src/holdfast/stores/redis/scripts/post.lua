-- Leave a message, unless there is one of that key. It lives as long as its thread does.
-- KEYS: the thread, its posts. ARGV: key, value, life in ms ('' for ever).
local is_new = redis.call('HSETNX', KEYS[2], ARGV[1], ARGV[2])
if ARGV[3] ~= '' then
  local left = redis.call('PTTL', KEYS[1])
  if left ~= -1 then
    redis.call('PEXPIRE', KEYS[2], left > 0 and left or ARGV[3])
  end
end
return is_new
