-- Leave a message, unless there is one of that key. It lives as long as its thread does.
-- KEYS: the thread, its posts. ARGV: key, value, how many ms it lives if there is no thread ('' for ever).
local is_new = redis.call('HSETNX', KEYS[2], ARGV[1], ARGV[2])
local left = redis.call('PTTL', KEYS[1])
if left >= 0 then
  redis.call('PEXPIRE', KEYS[2], math.max(left, 1))
elseif left == -2 and ARGV[3] ~= '' then
  redis.call('PEXPIRE', KEYS[2], ARGV[3])
end
return is_new
