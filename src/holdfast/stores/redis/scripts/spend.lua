-- Charge a bucket for up to `units`, one after the other, while it is paid off at most `burst` ahead of now.
-- KEYS: the bucket, the time at which it is paid off. ARGV: now, cost of a unit, burst, units. Times are microseconds.
-- Return how many were charged, and when the bucket is paid off.
local paid_off = tonumber(redis.call('GET', KEYS[1]) or 0)
local now, cost, burst = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local charged = 0
while charged < tonumber(ARGV[4]) and paid_off - burst <= now do
  paid_off = math.max(paid_off, now) + cost
  charged = charged + 1
end
local text = string.format('%.0f', paid_off)
if charged > 0 then
  -- A bucket that is paid off is as good as none.
  redis.call('SET', KEYS[1], text, 'PX', math.max(0, math.ceil((paid_off - now) / 1000)) + 1000)
end
return { charged, text }
