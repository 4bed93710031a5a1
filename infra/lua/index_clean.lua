-- Clear some rows of lives that are over, through the reverse index; never by SCAN.
-- ARGV  1 most rows per call. Returns how many may be left (0 = all clean).
local limit = tonumber(ARGV[1])
local slot = redis.call('SRANDMEMBER', P .. 'dirty')
if not slot then return 0 end
local held, spec = P .. 'held:' .. slot, P .. 'spec:' .. slot
local keys = redis.call('SPOP', held, limit)
for _, key in ipairs(redis.call('HRANDFIELD', spec, limit)) do
  keys[#keys + 1] = key
  redis.call('HDEL', spec, key)
end
clear_rows(tonumber(slot), table.concat(keys))
if redis.call('EXISTS', held, spec) == 0 then redis.call('SREM', P .. 'dirty', slot) end
local left = 0
for _, each in ipairs(redis.call('SMEMBERS', P .. 'dirty')) do
  left = left + redis.call('SCARD', P .. 'held:' .. each) + redis.call('HLEN', P .. 'spec:' .. each) + 1
end
return left
