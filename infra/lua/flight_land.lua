-- Not at work on this artifact any more; its tries count only those that ended with their maker.
-- KEYS  1 flight, 2 tries
-- ARGV  1 maker
if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('DEL', KEYS[1], KEYS[2]) end
return 0
