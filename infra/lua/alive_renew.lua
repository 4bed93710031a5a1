-- A worker without partitions lives on, for claims; or, with 0 ms, ends its life there.
-- KEYS: life:<worker>, alive:<worker>. ARGV: epoch, ms, how long the name is remembered in ms.
-- Returns 1 when a later life of this name has begun, and nothing was done.
local known = tonumber(redis.call('GET', KEYS[1]) or 0)
if known > tonumber(ARGV[1]) then return 1 end
-- A missing epoch means that Redis lost its memory; the living enter themselves again.
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[3])
if tonumber(ARGV[2]) > 0 then redis.call('SET', KEYS[2], ARGV[1], 'PX', ARGV[2]) else redis.call('DEL', KEYS[2]) end
return 0
