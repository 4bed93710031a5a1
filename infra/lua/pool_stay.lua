-- A worker of a stateless pool is there for so long; or, with 0 ms, not any more.
-- KEYS: members. ARGV: worker, ms.
local t = redis.call('TIME')
local now, ms = t[1] * 1000 + math.floor(t[2] / 1000), tonumber(ARGV[2])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
if ms == 0 then return redis.call('ZREM', KEYS[1], ARGV[1]) end
redis.call('ZADD', KEYS[1], now + ms, ARGV[1])
return redis.call('PEXPIRE', KEYS[1], ms)  -- nobody in it stays for longer than the one who came last
