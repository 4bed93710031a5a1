-- Begin a life: one more than the last of this name. KEYS: epoch, alive:<worker>. ARGV: worker, lease time in ms.
-- Returns the new epoch. Run twice because a reply was lost, it only skips a number.
local epoch = redis.call('HINCRBY', KEYS[1], ARGV[1], 1)
redis.call('SET', KEYS[2], epoch, 'PX', ARGV[2])
return epoch
