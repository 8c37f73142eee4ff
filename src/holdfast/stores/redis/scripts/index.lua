-- Return rows below `before`, newest first, without their bodies: alternately a seq and its row.
-- KEYS: the thread. ARGV: before ('' for all), limit ('' for none).
local top = tonumber(redis.call('HGET', KEYS[1], 't')) or 0
local at = ARGV[1] == '' and top or math.min(top, tonumber(ARGV[1]) - 1)
local limit = ARGV[2] == '' and math.huge or tonumber(ARGV[2])
local found = {}

local function add(seqs)
  local fields = {}
  for position, seq in ipairs(seqs) do
    fields[position] = 'r' .. seq
  end
  for position, row in ipairs(redis.call('HMGET', KEYS[1], unpack(fields))) do
    if row and #found < 2 * limit then
      local length = #row
      if length >= 13 then
        length = 13 + struct.unpack('>I4', row, 9) + string.byte(row, 13)
      end
      found[#found + 1] = seqs[position]
      found[#found + 1] = string.sub(row, 1, length)
    end
  end
end

-- Most threads have nearly all of their rows, which are read one by one. If most rows were dropped, search for the
-- seqs that remain.
local kept
if at > 2 * redis.call('HLEN', KEYS[1]) + 256 then
  kept = {}
  for _, field in ipairs(redis.call('HKEYS', KEYS[1])) do
    local seq = tonumber(string.match(field, '^r(%d+)$'))
    if seq and seq <= at then
      kept[#kept + 1] = seq
    end
  end
  table.sort(kept)
  at = #kept
end
while at >= 1 and #found < 2 * limit do
  local seqs = {}
  for position = at, math.max(1, at - math.min(256, limit - #found / 2) + 1), -1 do
    seqs[#seqs + 1] = kept and kept[position] or position
  end
  add(seqs)
  at = at - #seqs
end
return found
