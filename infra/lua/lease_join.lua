-- Begin a life. KEYS: epochs, life:<worker>, alive:<worker>. ARGV: lease time in ms, how long the name is remembered in ms.
-- Returns the new epoch: higher than all before it, of any name, so that nothing goes wrong when names are forgotten. It is
-- the time in ms where that is higher still, so that it also holds when Redis has forgotten everything. Run twice because
-- a reply was lost, it only skips a number.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local last = tonumber(redis.call('GET', KEYS[1]) or 0)
local epoch = string.format('%.0f', math.max(last + 1, now))
redis.call('SET', KEYS[1], epoch)
redis.call('SET', KEYS[2], epoch, 'PX', ARGV[2])
redis.call('SET', KEYS[3], epoch, 'PX', ARGV[1])
return epoch
