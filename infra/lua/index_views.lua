-- Views of the candidates, as schemas.steering.WorkerView. `ask` is the unpacked argument map of index_decide.lua.
local FIELDS = {'life', 'n', 'u', 'rate', 'per_sequence', 'total', 'referenced', 'waiting', 'running', 'fed_at'}

local function family_inflight(slot, keys, depth)
  if depth == 0 then return 0 end
  local power = 1
  while power * 2 <= depth do power = power * 2 end
  return tonumber(redis.call('HGET', P .. 'fam:' .. slot, keys[power]) or 0)
end

-- A feed that has been silent too long: go by decisions from now on, until events come again.
local function watch_feed(slot, fed_at, now, lag_ms)
  if fed_at and now - tonumber(fed_at) > lag_ms then redis.call('HSET', P .. 'w:' .. slot, 'approximate', 1) end
end

local function look(ask, keys)
  local names, slots, views, now = redis.call('HMGET', P .. 'slots', unpack(ask.workers)), {}, {}, now_ms()
  for i = 1, #ask.workers do
    if names[i] then slots[#slots + 1] = tonumber(names[i]) end
  end
  local depth = depths(keys, slots)
  for i, name in ipairs(ask.workers) do
    local slot = tonumber(names[i] or -1)
    local w = slot >= 0 and redis.call('HMGET', P .. 'w:' .. slot, unpack(FIELDS))
    if w and w[1] == name then
      watch_feed(slot, w[10], now, ask.lag_ms)
      local total = tonumber(w[6])
      views[#views + 1] = {
        worker = name, slot = slot, matched = depth[slot], n = tonumber(w[2]), u = tonumber(w[3]),
        family = family_inflight(slot, keys, depth[slot]), rate = tonumber(w[4]), per_sequence = tonumber(w[5]),
        total = total, unused = math.max(0, total - redis.call('SCARD', P .. 'held:' .. slot)),
        referenced = tonumber(w[7]), waiting = tonumber(w[8]), running = tonumber(w[9]),
      }
    end
  end
  return views
end
