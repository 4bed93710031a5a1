-- End the lives whose lease is gone. At most one worker does so in a while: it is enough.
-- ARGV  1 what keys.alive begins with (its value is the epoch), 2 ms in which nobody need do it again
-- Returns how many were ended; -1 when somebody has just looked.
if not redis.call('SET', P .. 'swept', 1, 'NX', 'PX', ARGV[2]) then return -1 end
local ended, all = 0, redis.call('HGETALL', P .. 'slots')
for i = 1, #all, 2 do
  local name, epoch = string.match(all[i], '^(.*):(%d+)$')
  if redis.call('GET', ARGV[1] .. name) ~= epoch then
    end_life(all[i], all[i + 1])
    ended = ended + 1
  end
end
return ended
