-- Owners and the beats of those who count for the share. KEYS: workers, beats, then the lease keys in order.
-- Returns {owners, name and beat in turn}; the owner of a free partition is ''.
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local owners, beats = {}, {}
for k = 3, #KEYS do owners[k - 2] = redis.call('GET', KEYS[k]) or '' end
for _, name in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], '(' .. now, '+inf')) do
  local beat = redis.call('HGET', KEYS[2], name)
  if beat then
    beats[#beats + 1] = name
    beats[#beats + 1] = beat
  end
end
return {owners, beats}
