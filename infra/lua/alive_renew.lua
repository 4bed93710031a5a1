-- A worker without partitions lives on, for claims; or, with 0 ms, ends its life there.
-- KEYS: epoch, alive:<worker>. ARGV: worker, epoch, ms.
-- Returns 1 when another life of this name has begun since, and nothing was done.
local known = redis.call('HGET', KEYS[1], ARGV[1])
if known and known ~= ARGV[2] then return 1 end
-- A missing epoch means that Redis lost its memory; the living enter themselves again.
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
if tonumber(ARGV[3]) > 0 then redis.call('SET', KEYS[2], ARGV[2], 'PX', ARGV[3]) else redis.call('DEL', KEYS[2]) end
return 0
