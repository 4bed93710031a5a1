-- Give back these leases and stop counting for the share. ARGV[3] = ms for which this life still lives for claims; 0: not
-- at all. KEYS: life:<worker>, alive:<worker>, workers, beats, then the lease keys to free. ARGV: worker, epoch, ms, and how
-- long the name is remembered in ms. Returns fenced: a later life of this name has joined, and nothing was done.
local worker, epoch, ms = ARGV[1], ARGV[2], tonumber(ARGV[3])
local known = tonumber(redis.call('GET', KEYS[1]) or 0)
if known > tonumber(epoch) then return 1 end
redis.call('SET', KEYS[1], epoch, 'PX', ARGV[4])
-- Leases of earlier lives of this name as well: they would only be in the way until they expire.
for k = 5, #KEYS do
  local owner = redis.call('GET', KEYS[k])
  if owner and string.match(owner, '^(.*):%d+$') == worker then redis.call('DEL', KEYS[k]) end
end
redis.call('ZREM', KEYS[3], worker)
redis.call('HDEL', KEYS[4], worker)
if ms > 0 then redis.call('SET', KEYS[2], epoch, 'PX', ms) else redis.call('DEL', KEYS[2]) end
return 0
