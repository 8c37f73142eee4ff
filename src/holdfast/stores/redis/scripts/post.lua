-- Add a message, unless one with that key exists. It expires with its thread.
-- KEYS: the thread, its posts. ARGV: key, value, time to live in ms if the thread does not exist ('' for ever).
local is_new = redis.call('HSETNX', KEYS[2], ARGV[1], ARGV[2])
local left = redis.call('PTTL', KEYS[1])
if left >= 0 then
  redis.call('PEXPIRE', KEYS[2], math.max(left, 1))
elseif left == -2 and ARGV[3] ~= '' then
  redis.call('PEXPIRE', KEYS[2], ARGV[3])
end
return is_new
