-- Mark a request as cancelled, unless it has ended, and tell the workers.
-- KEYS  1 request state
-- ARGV  1 reason, 2 channel, 3 encoded signal, 4 TTL of a flag that nobody has claimed yet (ms)
if redis.call('HEXISTS', KEYS[1], 'done') == 1 then return 0 end
local fresh = redis.call('EXISTS', KEYS[1]) == 0
redis.call('HSETNX', KEYS[1], 'cancelled', ARGV[1])
if fresh then redis.call('PEXPIRE', KEYS[1], ARGV[4]) end
redis.call('PUBLISH', ARGV[2], ARGV[3])
return 0
