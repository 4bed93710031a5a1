-- Views of the candidates: schemas.steering.WorkerView, with `slot`. `ask` is the argument map of index_decide.lua.
local FIELDS = {'life', 'n', 'u', 'rate', 'per_sequence', 'total', 'referenced', 'waiting', 'running', 'fed_at', 'base',
  'unused', 'held_then'}

local function family_inflight(slot, packed, depth)
  if depth == 0 then return 0 end
  local power = 1
  while power * 2 <= depth do power = power * 2 end
  return tonumber(redis.call('HGET', P .. 'fam:' .. slot, key_at(packed, power)) or 0)
end

-- A feed that has been silent too long: go by decisions from now on, until events come again.
local function watch_feed(slot, fed_at, now, lag_ms)
  if now - tonumber(fed_at) > lag_ms then redis.call('HSET', P .. 'w:' .. slot, 'approximate', 1) end
end

-- Blocks that hold nothing are what the worker reported, less what it has stored since. Total less known keys would not
-- do: a partly filled block has no key. More than reported it never is: a block that loses its key holds another soon.
-- A worker of an earlier version reports no such figure; it is judged by the keys.
local function unused_of(slot, w)
  local total = tonumber(w[6])
  local reported, then_held = math.min(total, tonumber(w[12] or total)), tonumber(w[13] or 0)
  return math.max(0, reported - math.max(0, redis.call('SCARD', P .. 'held:' .. slot) - then_held))
end

local function view_of(name, slot, w, matched)
  return {
    worker = name, slot = slot, matched = matched, n = tonumber(w[2]), u = tonumber(w[3]),
    rate = tonumber(w[4]), per_sequence = tonumber(w[5]), base = tonumber(w[11]),
    total = tonumber(w[6]), unused = unused_of(slot, w),
    referenced = tonumber(w[7]), waiting = tonumber(w[8]), running = tonumber(w[9]),
  }
end

local function look(ask, packed)
  local taken, slots, views, now = redis.call('HMGET', P .. 'slots', unpack(ask.workers)), {}, {}, now_ms()
  for i = 1, #ask.workers do
    if taken[i] then slots[#slots + 1] = tonumber(taken[i]) end
  end
  local depth = depths(packed, slots)
  for i, name in ipairs(ask.workers) do
    local slot = tonumber(taken[i] or -1)
    local w = slot >= 0 and redis.call('HMGET', P .. 'w:' .. slot, unpack(FIELDS))
    if w and w[1] == name then
      watch_feed(slot, w[10], now, ask.lag_ms)
      views[#views + 1] = view_of(name, slot, w, depth[slot])
    end
  end
  return views
end
