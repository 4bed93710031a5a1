-- Begin to make an artifact, unless somebody who lives does. See ArtifactNotes.take_off.
-- KEYS  1 flight, 2 tries
-- ARGV  1 maker, 2 TTL of the flight (ms), 3 TTL of the tries (ms)
-- Returns which try this is; 0 when another one is at it.
local maker = redis.call('GET', KEYS[1])
if maker and maker ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
if maker then return tonumber(redis.call('GET', KEYS[2]) or 1) end
local tries = redis.call('INCR', KEYS[2])
redis.call('PEXPIRE', KEYS[2], ARGV[3])
return tries
