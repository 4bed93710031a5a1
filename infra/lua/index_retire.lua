-- A life is over: its rows and reservations stop counting now; its slot is used again once its rows are gone.
-- ARGV  1 incarnation
local slot = redis.call('HGET', P .. 'slots', ARGV[1])
if not slot then return 0 end
redis.call('HDEL', P .. 'slots', ARGV[1])
redis.call('DEL', P .. 'w:' .. slot, P .. 'fam:' .. slot)
redis.call('SADD', P .. 'dirty', slot)
return 1
