-- A life is over: its rows and reservations stop counting now; its slot is used again once its rows are gone.
-- ARGV  1 incarnation
local slot = redis.call('HGET', P .. 'slots', ARGV[1])
if not slot then return 0 end
end_life(ARGV[1], slot)
return 1
