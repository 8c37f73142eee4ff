-- Return the rows from the base of row `seq` up to it, nil for a missing one.
-- KEYS: the thread. ARGV: seq.
local last = redis.call('HGET', KEYS[1], 'r' .. ARGV[1])
if not last or #last < 8 then
  return { last }
end
local seq, base = tonumber(ARGV[1]), struct.unpack('>I8', last)
local found = {}
for first = math.max(base, 0), seq, 1000 do
  local fields = {}
  for at = first, math.min(first + 999, seq) do
    fields[#fields + 1] = 'r' .. at
  end
  for _, row in ipairs(redis.call('HMGET', KEYS[1], unpack(fields))) do
    found[#found + 1] = row
  end
end
return found
