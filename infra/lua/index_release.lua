-- Give reservations back: prefill load at the first token, everything at the end. Each part is given back once.
-- ARGV  1 msgpack list of tickets at their first token, 2 msgpack list of tickets at their end
for _, ticket in ipairs(cmsgpack.unpack(ARGV[1])) do
  local record = redis.call('HMGET', P .. 'res:' .. ticket, 'slot', 'life', 'u')
  if record[1] and record[3] ~= '0' then
    local w = P .. 'w:' .. record[1]
    redis.call('HSET', P .. 'res:' .. ticket, 'u', 0)
    if redis.call('HGET', w, 'life') == record[2] then redis.call('HINCRBY', w, 'u', -tonumber(record[3])) end
  end
end
local ended = 0
for _, ticket in ipairs(cmsgpack.unpack(ARGV[2])) do ended = ended + end_reservation(ticket) end
return ended
