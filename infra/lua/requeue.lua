-- Give up a claim, so that the next one by anybody succeeds. Harmless when repeated or too late.
-- KEYS  1 request state
-- ARGV  1 owner "worker:epoch", 2 attempt
local state = redis.call('HMGET', KEYS[1], 'owner', 'attempt')
if state[1] == ARGV[1] and state[2] == ARGV[2] then redis.call('HDEL', KEYS[1], 'owner', 'call') end
return 0
