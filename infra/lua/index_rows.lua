-- Common part of the index scripts. A row is a string per block key: a bit mask of worker slots, 32-bit words.
-- A bit is set while the slot's worker holds the block (set held:<slot>) or a reservation promises it (spec:<slot>).
-- All keys begin with KEYS[1] = tri:{model}:ix: and so share a cluster slot. See infra/prefix_index.py for the table.
local P = KEYS[1]
local KEY_BYTES, CHUNK, REAPED_AT_ONCE = 8, 128, 8
local ROW_TTL_MS = 6 * 3600 * 1000
local band, bor, bxor, lshift, bnot = bit.band, bit.bor, bit.bxor, bit.lshift, bit.bnot

local function now_ms()
  local t = redis.call('TIME')
  return t[1] * 1000 + math.floor(t[2] / 1000)
end

-- Its rows and reservations stop counting at once; its slot is used again once its rows are gone.
local function end_life(life, slot)
  redis.call('HDEL', P .. 'slots', life)
  redis.call('DEL', P .. 'w:' .. slot, P .. 'fam:' .. slot)
  redis.call('SADD', P .. 'dirty', slot)
end

local function cut(packed)
  local keys, count = {}, 0
  for at = 1, #packed, KEY_BYTES do
    count = count + 1
    keys[count] = string.sub(packed, at, at + KEY_BYTES - 1)
  end
  return keys
end

local function key_at(packed, index)
  return string.sub(packed, (index - 1) * KEY_BYTES + 1, index * KEY_BYTES)
end

local function word(row, index)
  if not row or #row < index * 4 then return 0 end
  return bit.tobit((struct.unpack('<I4', row, index * 4 - 3)))
end

local function with_bit(row, slot, on)
  local index, mask = math.floor(slot / 32) + 1, lshift(1, slot % 32)
  local words = math.max(index, math.floor(#(row or '') / 4))
  local out, any = {}, false
  for w = 1, words do
    local value = word(row, w)
    if w == index then value = on and bor(value, mask) or band(value, bnot(mask)) end
    if value ~= 0 then any = true end
    out[w] = struct.pack('<I4', value % 4294967296)
  end
  return any and table.concat(out) or false
end

-- Calls body(index of the first key, names of rows, rows) for every chunk; stops when body returns true.
local function each_chunk(packed, body)
  local step, prefix = CHUNK * KEY_BYTES, P .. 'b:'
  for from = 1, #packed, step do
    local names, count = {}, 0
    for at = from, math.min(from + step - 1, #packed), KEY_BYTES do
      count = count + 1
      names[count] = prefix .. string.sub(packed, at, at + KEY_BYTES - 1)
    end
    if body((from - 1) / KEY_BYTES + 1, names, redis.call('MGET', unpack(names))) then return end
  end
end

local function set_rows(slot, packed)
  local made = {}
  each_chunk(packed, function(_, names, rows)
    for i = 1, #names do
      local row = rows[i] or ''
      made[row] = made[row] or with_bit(row, slot, true)
      redis.call('SET', names[i], made[row], 'PX', ROW_TTL_MS)
    end
  end)
end

local function clear_rows(slot, packed)
  each_chunk(packed, function(_, names, rows)
    local empty = {}
    for i = 1, #names do
      local left = rows[i] and with_bit(rows[i], slot, false)
      if left then redis.call('SET', names[i], left, 'KEEPTTL') else empty[#empty + 1] = names[i] end
    end
    if #empty > 0 then redis.call('DEL', unpack(empty)) end
  end)
end

-- Longest contiguous prefix of each slot of `slots`, in blocks: slot -> depth.
local function depths(packed, slots)
  local alive, depth, words, previous = {}, {}, 0, nil
  for _, slot in ipairs(slots) do
    local w = math.floor(slot / 32) + 1
    for missing = words + 1, w do alive[missing] = 0 end
    words = math.max(words, w)
    alive[w] = bor(alive[w], lshift(1, slot % 32))
    depth[slot] = #packed / KEY_BYTES
  end
  each_chunk(packed, function(first, names, rows)
    for i = 1, #names do
      local row = rows[i]
      if row ~= previous then  -- equal strings are one string in Lua: a run of equal rows costs nothing
        previous = row
        local any = false
        for w = 1, words do
          local still = band(alive[w], word(row, w))
          local gone = bxor(alive[w], still)
          if gone ~= 0 then
            for b = 0, 31 do
              if band(gone, lshift(1, b)) ~= 0 then depth[(w - 1) * 32 + b] = first + i - 2 end
            end
          end
          alive[w] = still
          any = any or still ~= 0
        end
        if not any then return true end
      end
    end
  end)
  return depth
end

-- Calls body(up to CHUNK keys) until the list is done.
local function in_parts(keys, body)
  for first = 1, #keys, CHUNK do body({unpack(keys, first, math.min(first + CHUNK - 1, #keys))}) end
end

local function count_up(name, keys)
  in_parts(keys, function(part)
    local counts, pairs_ = redis.call('HMGET', name, unpack(part)), {}
    for i, key in ipairs(part) do
      pairs_[2 * i - 1], pairs_[2 * i] = key, (counts[i] or 0) + 1
    end
    redis.call('HSET', name, unpack(pairs_))
  end)
end

-- Returns the keys that nobody counts any more.
local function count_down(name, keys)
  local gone = {}
  in_parts(keys, function(part)
    local counts, pairs_, zero = redis.call('HMGET', name, unpack(part)), {}, {}
    for i, key in ipairs(part) do
      if tonumber(counts[i] or 0) > 1 then
        pairs_[#pairs_ + 1], pairs_[#pairs_ + 2] = key, counts[i] - 1
      else
        zero[#zero + 1], gone[#gone + 1] = key, key
      end
    end
    if #pairs_ > 0 then redis.call('HSET', name, unpack(pairs_)) end
    if #zero > 0 then redis.call('HDEL', name, unpack(zero)) end
  end)
  return gone
end

local function unheld(slot, keys)
  local out = {}
  in_parts(keys, function(part)
    for i, held in ipairs(redis.call('SMISMEMBER', P .. 'held:' .. slot, unpack(part))) do
      if held == 0 then out[#out + 1] = part[i] end
    end
  end)
  return out
end

local function unpromised(slot, keys)
  local out = {}
  in_parts(keys, function(part)
    local counts = redis.call('HMGET', P .. 'spec:' .. slot, unpack(part))
    for i, key in ipairs(part) do
      if not counts[i] then out[#out + 1] = key end
    end
  end)
  return out
end

local function add_held(slot, keys)
  in_parts(keys, function(part) redis.call('SADD', P .. 'held:' .. slot, unpack(part)) end)
  redis.call('PEXPIRE', P .. 'held:' .. slot, ROW_TTL_MS)
end

-- Keep what was promised as if the worker had reported it: the record of decisions, for one whose feed is not to be
-- trusted. Bounded by the worker's memory; what has to go goes at random.
local function keep_as_held(slot, keys)
  add_held(slot, keys)
  local total = tonumber(redis.call('HGET', P .. 'w:' .. slot, 'total') or 0)
  local over = redis.call('SCARD', P .. 'held:' .. slot) - total
  if over > 0 then
    clear_rows(slot, table.concat(unpromised(slot, redis.call('SPOP', P .. 'held:' .. slot, over))))
  end
end

-- Give back everything one reservation still holds; harmless when it has been given back or its worker's life is over.
local function end_reservation(ticket)
  local record = redis.call('HMGET', P .. 'res:' .. ticket, 'slot', 'life', 'u', 'promised', 'family')
  redis.call('DEL', P .. 'res:' .. ticket)
  redis.call('ZREM', P .. 'due', ticket)
  local slot, w = record[1], P .. 'w:' .. (record[1] or '')
  if not slot or redis.call('HGET', w, 'life') ~= record[2] then return 0 end
  redis.call('HINCRBY', w, 'n', -1)
  redis.call('HINCRBY', w, 'u', -tonumber(record[3]))
  count_down(P .. 'fam:' .. slot, cut(record[5]))
  local promised = cut(record[4])
  if redis.call('HGET', w, 'approximate') then keep_as_held(slot, promised) end
  clear_rows(tonumber(slot), table.concat(unheld(slot, count_down(P .. 'spec:' .. slot, promised))))
  return 1
end

-- Take what a decision takes. `matched` blocks are there already; the rest is promised.
local function reserve(ticket, slot, life, packed, matched, uncached, ttl_ms)
  local w, promised, family, power = P .. 'w:' .. slot, string.sub(packed, matched * KEY_BYTES + 1), {}, 1
  redis.call('HINCRBY', w, 'n', 1)
  redis.call('HINCRBY', w, 'u', uncached)
  count_up(P .. 'spec:' .. slot, cut(promised))
  set_rows(slot, promised)
  while power <= #packed / KEY_BYTES do
    family[#family + 1] = key_at(packed, power)
    power = power * 2
  end
  count_up(P .. 'fam:' .. slot, family)
  redis.call('HSET', P .. 'res:' .. ticket, 'slot', slot, 'life', life, 'u', uncached,
    'promised', promised, 'family', table.concat(family))
  redis.call('ZADD', P .. 'due', now_ms() + ttl_ms, ticket)
  redis.call('INCR', P .. 'version')
end

local function reap(limit)
  for _, ticket in ipairs(redis.call('ZRANGEBYSCORE', P .. 'due', '-inf', now_ms(), 'LIMIT', 0, limit)) do
    end_reservation(ticket)
  end
end
