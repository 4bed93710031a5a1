-- A batch of one worker's cache events, in order. Number 0 means "whatever came before, begin here" (a resync).
-- ARGV  1 incarnation, 2 batch number, 3 msgpack list of {kind, bytes}: s(tored) r(emoved) c(leared),
--       4 the block keys of all events, packed, back to back
-- Returns 'ok', 'known' (had it), 'gap' (an earlier one is missing: nothing applied), 'over' (that life is over),
-- 'more' (a clearing is under way: call again).
local CLEARED_AT_ONCE = 2048
local slot = redis.call('HGET', P .. 'slots', ARGV[1])
if not slot then return 'over' end
local w, number = P .. 'w:' .. slot, tonumber(ARGV[2])
local last = tonumber(redis.call('HGET', w, 'seq'))
if number ~= 0 and number <= last then return 'known' end
if number > last + 1 then
  redis.call('HSET', w, 'approximate', 1)
  return 'gap'
end
slot = tonumber(slot)
local held, at = P .. 'held:' .. slot, 1
for _, event in ipairs(cmsgpack.unpack(ARGV[3])) do
  local kind, packed = event[1], string.sub(ARGV[4], at, at + event[2] - 1)
  at = at + event[2]
  if kind == 's' then
    add_held(slot, cut(packed))
    set_rows(slot, packed)
  else
    local keys = kind == 'c' and redis.call('SPOP', held, CLEARED_AT_ONCE) or cut(packed)
    in_parts(keys, function(part) redis.call('SREM', held, unpack(part)) end)
    clear_rows(slot, table.concat(unpromised(slot, keys)))
    if kind == 'c' and redis.call('EXISTS', held) == 1 then return 'more' end
  end
end
redis.call('HSET', w, 'seq', number, 'fed_at', now_ms())
redis.call('HDEL', w, 'approximate')
return 'ok'
