-- Threads of one listing, newest created first: member and head in turn; before them the member looked at last, empty
-- when the end was reached.
-- KEYS: the listing. ARGV: the member to go on after ('' to begin), limit, then conditions: each a list of words of
-- which a thread must be listed under one.
local function words(packed)
  local found, at = {}, 1
  while at <= #packed do
    found[#found + 1], at = struct.unpack('>I4c0', packed, at)
  end
  return found
end

local base = string.match(KEYS[1], '^[^}]*}:')
local limit = tonumber(ARGV[2])
local from = ARGV[1] == '' and '+' or '(' .. ARGV[1]
local conditions = {}
for at = 3, #ARGV do
  conditions[at - 2] = words(ARGV[at])
end

local function matches(mark)
  local parts, listed = words(mark), {}
  for at = 3, #parts do
    listed[parts[at]] = true
  end
  for _, choices in ipairs(conditions) do
    local any = false
    for _, word in ipairs(choices) do
      any = any or listed[word]
    end
    if not any then
      return false
    end
  end
  return true
end

local found = { '' }
-- No call looks at more than a thousand threads: the server has others to serve.
local members = redis.call('ZREVRANGEBYLEX', KEYS[1], from, '-', 'LIMIT', 0, #conditions > 0 and 1000 or limit)
for _, member in ipairs(members) do
  local kept = redis.call('HMGET', base .. 't' .. string.sub(member, 9), 'h', 'm')
  if not kept[1] and redis.call('EXISTS', base .. 'x') == 1 then
    redis.call('ZREM', KEYS[1], member)
  elseif not kept[1] or not kept[2] or kept[2] == '' or matches(kept[2]) then
    found[#found + 1] = member
    found[#found + 1] = kept[1] or ''
  end
  found[1] = member
  if #found > 2 * limit then
    return found
  end
end
if #members < (#conditions > 0 and 1000 or limit) then
  found[1] = ''
end
return found
