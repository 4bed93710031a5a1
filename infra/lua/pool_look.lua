-- Who is there now. KEYS: members of one pool each. Returns the names in each, in the order of the keys.
local t = redis.call('TIME')
local now, found = t[1] * 1000 + math.floor(t[2] / 1000), {}
for i, key in ipairs(KEYS) do found[i] = redis.call('ZRANGEBYSCORE', key, '(' .. now, '+inf') end
return found
