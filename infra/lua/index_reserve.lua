-- Reserve what a policy outside Redis has chosen, if nothing was decided since it looked. What is matched is looked up
-- here: it may have changed since in any case.
-- ARGV  1 ticket, 2 incarnation, 3 version it looked at or '' where the choice does not depend on other decisions,
--       4 prompt tokens, 5 block tokens, 6 ttl (ms), 7 the prompt's block keys, packed
-- Returns 1 reserved (also when it had been), 0 look again, -1 that life is over.
local slot = tonumber(redis.call('HGET', P .. 'slots', ARGV[2]) or -1)
if slot < 0 then return -1 end
local taken = redis.call('HGET', P .. 'res:' .. ARGV[1], 'life')
if taken == ARGV[2] then return 1 end
if ARGV[3] ~= '' and ARGV[3] ~= (redis.call('GET', P .. 'version') or '0') then return 0 end
if taken then end_reservation(ARGV[1]) end
local matched = depths(ARGV[7], {slot})[slot]
reserve(ARGV[1], slot, ARGV[2], ARGV[7], matched, tonumber(ARGV[4]) - matched * tonumber(ARGV[5]), tonumber(ARGV[6]))
return 1
