-- One engine step: store the new events of all live requests, publish those stored. See Results.append.
-- KEYS  1 key prefix of request states, 2 key prefix of replay streams; ids follow below, all in the {model} slot
-- ARGV  1 msgpack rows [id, attempt, first seq, last seq, flags, batch bytes, reply_to], 2 the batches back to back,
--       3 channel prefix, 4 entries kept per stream, 5 TTL after the last event (ms)
-- Returns one letter per row: s(tored) c(ancelled) f(enced) e(nded).
local TERMINAL, EMITTED, MADE = 1, 2, 4  -- flags; what is left of them, in units of MADE, counts Made events

local function is_repeat(stream, last_seq, batch)
  local id = last_seq .. '-0'
  local entry = redis.call('XRANGE', stream, id, id)[1]
  return entry ~= nil and entry[2][2] == batch
end

local function write(state, stream, row, batch)
  local first_seq, last_seq, flags = row[3], row[4], row[5]
  -- pcall: a stream that outlived its state refuses the id; that is this row's fault, not the others'. Whatever else is
  -- wrong is the server's: it cannot write now, and must not be taken for another attempt's fence.
  local added = redis.pcall('XADD', stream, 'MAXLEN', '~', ARGV[4], last_seq .. '-0', 'b', batch)
  if type(added) == 'table' then
    if string.find(added.err, 'ID specified', 1, true) or string.find(added.err, 'WRONGTYPE', 1, true) then
      return false
    end
    redis.call('XADD', stream, 'MAXLEN', '~', ARGV[4], last_seq .. '-0', 'b', batch)  -- raises it
  end
  if flags % MADE >= EMITTED then
    redis.call('HSET', state, 'last_seq', last_seq, 'emitted', 1)
  else
    redis.call('HSET', state, 'last_seq', last_seq)
  end
  if flags >= MADE then redis.call('HINCRBY', state, 'made', math.floor(flags / MADE)) end
  if flags % 2 == TERMINAL then
    redis.call('HSET', state, 'done', 1)
    redis.call('PEXPIRE', state, ARGV[5])
    redis.call('PEXPIRE', stream, ARGV[5])
  elseif redis.call('PTTL', stream) < 0 then
    redis.call('PEXPIRE', stream, redis.call('PTTL', state))  -- the claim decided how long
  end
  return true
end

-- The store has lost the state of a request that runs (a flush, a failover to an empty replica): whoever runs it goes
-- on. Should it be two, the first to come is as good as the other, and fences it.
local function adopt(state, row)
  redis.call('HSET', state, 'attempt', row[2], 'last_seq', row[3] - 1)
  redis.call('PEXPIRE', state, ARGV[5])
end

-- The letter, and whether the batch is new.
local function store(row, batch)
  local state, stream = KEYS[1] .. row[1], KEYS[2] .. row[1]
  local now = redis.call('HMGET', state, 'attempt', 'last_seq', 'done', 'cancelled')
  local stored = (now[4] and row[5] % 2 ~= TERMINAL) and 'c' or 's'
  local attempt, last_seq = tonumber(now[1] or 0), tonumber(now[2] or 0)
  if not now[1] and not now[3] and row[2] > 0 then
    adopt(state, row)
    attempt, last_seq = row[2], row[3] - 1
  end
  if attempt ~= row[2] or attempt == 0 then return 'f', false end
  if row[4] <= last_seq and is_repeat(stream, row[4], batch) then return stored, false end
  if now[3] then return 'e', false end
  -- A hole means that the store has lost a part of what came before (a failover): nobody could read past it.
  if row[3] ~= last_seq + 1 then return 'f', false end
  if not write(state, stream, row, batch) then return 'f', false end
  return stored, true
end

local function array_header(length)
  if length < 16 then return string.char(0x90 + length) end
  return string.char(0xdc, math.floor(length / 256), length % 256)
end

local letters, publications, at = {}, {}, 1
for i, row in ipairs(cmsgpack.unpack(ARGV[1])) do
  local batch = string.sub(ARGV[2], at, at + row[6] - 1)
  at = at + row[6]
  local letter, new = store(row, batch)
  letters[i] = letter
  if new then
    local batches = publications[row[7]] or {}
    publications[row[7]] = batches
    batches[#batches + 1] = batch
  end
end
for reply_to, batches in pairs(publications) do
  redis.call('PUBLISH', ARGV[3] .. reply_to, array_header(#batches) .. table.concat(batches))
end
return table.concat(letters)
