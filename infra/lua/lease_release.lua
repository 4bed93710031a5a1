-- Give back these leases and stop counting for the share. ARGV[3] = ms for which this life still lives for claims; 0: not
-- at all. KEYS: epoch, alive:<worker>, workers, beats, then the lease keys to free. ARGV: worker, epoch, ms.
-- Returns fenced: another life of this name has joined since, and nothing was done.
local worker, epoch, ms = ARGV[1], ARGV[2], tonumber(ARGV[3])
local known = redis.call('HGET', KEYS[1], worker)
if known and known ~= epoch then return 1 end
-- Leases of earlier lives of this name as well: they would only be in the way until they expire.
for k = 5, #KEYS do
  local owner = redis.call('GET', KEYS[k])
  if owner and string.match(owner, '^(.*):%d+$') == worker then redis.call('DEL', KEYS[k]) end
end
redis.call('ZREM', KEYS[3], worker)
redis.call('HDEL', KEYS[4], worker)
if ms > 0 then redis.call('SET', KEYS[2], epoch, 'PX', ms) else redis.call('DEL', KEYS[2]) end
return 0
