-- The agenda of one queue: mark and settle an entry around a swap, and take entries that are due.
-- KEYS: places, times, ready, held, free, lanes (see keys.py), the queues of the shard.
-- ARGV: what to do, now, now + HIDE, then the arguments of that function. A time is 8 bytes, the highest first.
-- A place is: the ticket of the write that is under way, until when others respect it, and the entry: '0' if held or '1',
-- rank, due, length of the route, route, lane. Routes and lanes are encoded so that none is the beginning of another.
local places, times, ready, held, free, lanes, queues = unpack(KEYS)
local now, soon = ARGV[2], ARGV[3]
local HELD, FREE, RANKS = '0', '1', 5
local CHUNK = 1000
local ROUTES = 10 -- where the routes begin in ARGV
local SETTLED, SHARED = string.rep('\0', 8), string.rep('*', 8)

-- The operator `<` would compare by the locale of the server.
local function is_less(one, other)
  for at = 1, math.min(#one, #other) do
    local left, right = string.byte(one, at), string.byte(other, at)
    if left ~= right then
      return left < right
    end
  end
  return #one < #other
end

local function parsed(packed)
  local length = string.byte(packed, 11)
  return {
    state = string.sub(packed, 1, 1),
    rank = string.sub(packed, 2, 2),
    due = string.sub(packed, 3, 10),
    route = string.sub(packed, 12, 11 + length),
    lane = string.sub(packed, 12 + length),
  }
end

local function packed(entry)
  return entry.state .. entry.rank .. entry.due .. string.char(#entry.route) .. entry.route .. entry.lane
end

local function read(thread)
  local place = redis.call('HGET', places, thread)
  if not place then
    return nil
  end
  local entry = parsed(string.sub(place, 17))
  entry.ticket, entry.respected = string.sub(place, 1, 8), string.sub(place, 9, 16)
  return entry
end

-- What was held and is due comes in the order of its due times alone.
local function ready_name(thread, entry)
  local order = entry.state == HELD and '\0\0\0' or entry.rank .. entry.lane
  return entry.route .. entry.state .. order .. entry.due .. thread
end

local function remove(thread, entry)
  redis.call('ZREM', times, entry.route .. entry.due .. thread)
  redis.call('ZREM', ready, ready_name(thread, entry))
  redis.call('ZREM', entry.state == HELD and held or free, thread)
  redis.call('ZREM', lanes, entry.lane .. thread)
end

local function add(thread, entry)
  if is_less(now, entry.due) then
    redis.call('ZADD', times, 0, entry.route .. entry.due .. thread)
  else
    redis.call('ZADD', ready, 0, ready_name(thread, entry))
  end
  redis.call('ZADD', entry.state == HELD and held or free, struct.unpack('>I8', entry.due), thread)
  if entry.state == HELD then
    redis.call('ZADD', lanes, 0, entry.lane .. thread)
  end
  redis.call('HSET', places, thread, entry.ticket .. entry.respected .. packed(entry))
end

-- Before a swap: make sure that somebody looks at the thread soon, whatever becomes of the swap. ARGV: thread, ticket,
-- the entry that the swap will need ('' if none), the name of the queue. While two writes are under way, neither may
-- make the entry later.
local function mark(thread, ticket, wanted, queue)
  local entry = read(thread)
  if not entry and wanted == '' then
    return 1
  end
  if entry then
    remove(thread, entry)
    local is_alone = entry.ticket == SETTLED or entry.ticket == ticket or not is_less(now, entry.respected)
    entry.ticket = is_alone and ticket or SHARED
    entry.due = is_less(soon, entry.due) and soon or entry.due
  else
    redis.call('SADD', queues, queue)
    entry = parsed(wanted)
    entry.ticket, entry.due = ticket, soon
  end
  entry.respected = soon
  add(thread, entry)
  return 1
end

-- After a swap, or after a head was read: make the entry what the head says. ARGV: as for `mark`. If others have marked
-- it meanwhile, the head may have changed: then only make the entry earlier, and a worker looks at the thread soon.
local function settle(thread, ticket, wanted, queue)
  local entry = read(thread)
  wanted = wanted ~= '' and parsed(wanted)
  if entry then
    remove(thread, entry)
  elseif wanted then
    redis.call('SADD', queues, queue)
  end
  if entry and entry.ticket ~= ticket then
    local due = wanted and is_less(wanted.due, soon) and wanted.due or soon
    entry.due = is_less(due, entry.due) and due or entry.due
    entry.ticket, entry.respected = SHARED, soon
    add(thread, entry)
  elseif wanted then
    wanted.ticket, wanted.respected = SETTLED, SETTLED
    wanted.due = not entry and is_less(soon, wanted.due) and soon or wanted.due
    add(thread, wanted)
  else
    redis.call('HDEL', places, thread)
  end
  return 1
end

-- Settle an entry because its thread was called: see `after_call`. If nobody else is writing, one that is held although
-- the head says that it is free was taken a moment ago.
local function call(thread, ticket, wanted, queue)
  local entry = read(thread)
  local is_taken = entry and entry.ticket == ticket and entry.state == HELD and is_less(now, entry.due)
  if is_taken and wanted ~= '' and parsed(wanted).state == FREE then
    remove(thread, entry)
    entry.ticket, entry.respected = SETTLED, SETTLED
    add(thread, entry)
    return 1
  end
  return settle(thread, ticket, wanted, queue)
end

-- The lowest name of a lane that follows this one.
local function beyond(lane)
  return string.sub(lane, 1, -2) .. '\1'
end

local function first(set, lowest, below)
  return redis.call('ZRANGEBYLEX', set, '[' .. lowest, '(' .. below, 'LIMIT', 0, 1)[1]
end

-- Move what is due by now to `ready`.
local function promote(route, past)
  for _, name in ipairs(redis.call('ZRANGEBYLEX', times, '[' .. route, '(' .. route .. past, 'LIMIT', 0, CHUNK)) do
    local thread = string.sub(name, #route + 9)
    local entry = read(thread)
    redis.call('ZREM', times, name)
    if entry then
      redis.call('ZADD', ready, 0, ready_name(thread, entry))
    end
  end
end

-- What a `take` has to do with: routes with something due, what it found, and how many threads may begin.
local routes, found, allowance = {}, {}, math.huge

local function is_paced(route)
  return route.is_unbegun and allowance <= 0
end

-- The first entry of a class (held or not, and rank) of all routes, from a lane on, and its route.
local function peek(class, from)
  local best, of
  for _, route in ipairs(routes) do
    if string.sub(class, 1, 1) == HELD or not is_paced(route) then
      local name = first(ready, route.name .. class .. from, route.name .. class .. '\255')
      local rest = name and string.sub(name, #route.name + 3)
      if rest and (not best or is_less(rest, best)) then
        best, of = rest, route
      end
    end
  end
  return best, of
end

local function pick(class, rest, route)
  local _, length = string.find(rest, '\0\0', 1, true)
  local thread = string.sub(rest, length + 9)
  local entry = read(thread)
  if not entry then
    redis.call('ZREM', ready, route.name .. class .. rest)
    return
  end
  found[#found + 1] = thread
  found[#found + 1] = packed(entry)
  if entry.state ~= HELD and route.is_unbegun then
    allowance = allowance - 1
  end
  remove(thread, entry)
  entry.state, entry.due = HELD, soon
  add(thread, entry)
end

local function pick_held(most)
  local class = HELD .. '\0'
  local rest, route = peek(class, '')
  while rest and #found < 2 * most do
    pick(class, rest, route)
    rest, route = peek(class, '')
  end
end

-- One of each lane in turn, until a whole turn gives nothing.
local function pick_in_turn(class, most, after, each)
  local from, has_picked = beyond(after), true
  while #found < 2 * most do
    local rest, route = peek(class, from)
    if rest then
      local _, length = string.find(rest, '\0\0', 1, true)
      local lane = string.sub(rest, 1, length)
      from = beyond(lane)
      if not each or redis.call('ZLEXCOUNT', lanes, '[' .. lane, '(' .. from) < each then
        pick(class, rest, route)
        has_picked = true
      end
    elseif from == '' or not has_picked then
      return
    else
      from, has_picked = '', false
    end
  end
end

-- When to look next, and 1 if something due is left. If limits hold it back, a place is free when the next one that is
-- held is due.
local function next_look(most)
  local next_due, has_more = string.char(16) .. string.rep('\0', 7), 0
  local function look_at(due)
    next_due = is_less(due, next_due) and due or next_due
  end
  for at = ROUTES, #ARGV, 2 do
    local name = first(times, ARGV[at], ARGV[at] .. '\255')
    if name then
      look_at(string.sub(name, #ARGV[at] + 1, #ARGV[at] + 8))
    end
  end
  for _, route in ipairs(routes) do
    if first(ready, route.name, route.name .. '\255') then
      has_more = 1
    end
  end
  if has_more == 1 and #found >= 2 * most then
    look_at(now)
  elseif has_more == 1 then
    local later = '(' .. string.format('%.0f', struct.unpack('>I8', now))
    local other = redis.call('ZRANGEBYSCORE', held, later, '+inf', 'LIMIT', 0, 1)[1]
    if other then
      look_at(read(other).due)
    end
  end
  return next_due, has_more
end

-- Take what is due. ARGV: now + 1, how many, the last lane served, how many may be held in all and of one lane ('' for
-- any number), how many may begin ('' for any number), then routes, each with '1' if its threads have not begun.
-- Return when to look next, 1 if something due is left, then threads, each with its entry.
local function take(past, most, after, concurrency, each, units)
  most, allowance = tonumber(most), tonumber(units) or math.huge
  for at = ROUTES, #ARGV, 2 do
    promote(ARGV[at], past)
    if first(ready, ARGV[at], ARGV[at] .. '\255') then
      routes[#routes + 1] = { name = ARGV[at], is_unbegun = ARGV[at + 1] == '1' }
    end
  end
  pick_held(most)
  local limit = most
  if concurrency ~= '' then
    limit = math.min(most, #found / 2 + math.max(0, tonumber(concurrency) - redis.call('ZCARD', held)))
  end
  for rank = 0, RANKS - 1 do
    pick_in_turn(FREE .. string.char(rank), limit, after, tonumber(each))
  end
  local next_due, has_more = next_look(most)
  return { next_due, has_more, found }
end

local functions = { mark = mark, settle = settle, call = call, take = take }
return functions[ARGV[1]](unpack(ARGV, 4, 9))
