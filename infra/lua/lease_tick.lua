-- Renew this worker and its leases, take free ones up to its share, give the surplus back. Redis' clock is the only one.
-- KEYS: life:<worker>, alive:<worker>, workers, beats, then all lease keys in order; a lease's value is `<worker>:<epoch>`.
-- ARGV: worker, epoch, lease time in ms, beat, '1' or '0' for each partition: held after the last tick or not; how long the
-- name is remembered in ms. Returns {fenced, owned, taken}; fenced means that a later life of this name has joined.
--
-- The share is floor(P/n), and one more for P%n workers. Who holds that one more keeps it while not too many do: a name
-- that sorts first moves nothing when it joins. A script runs alone, so two can never give up the same surplus.
-- After an outage longer than the lease time everybody takes back what it had, and looks at the rest one tick later, when
-- the others are back as well.
local worker, epoch, ttl = ARGV[1], ARGV[2], ARGV[3]
local me = worker .. ':' .. epoch
local known = tonumber(redis.call('GET', KEYS[1]) or 0)
if known > tonumber(epoch) then return {1, {}, {}} end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

-- A missing epoch means that Redis lost its memory; the living enter themselves again.
redis.call('SET', KEYS[1], epoch, 'PX', ARGV[6])
redis.call('SET', KEYS[2], epoch, 'PX', ttl)
redis.call('ZADD', KEYS[3], now + ttl, worker)
local dead = redis.call('ZRANGEBYSCORE', KEYS[3], '-inf', now)
for _, name in ipairs(dead) do
  redis.call('ZREM', KEYS[3], name)
  redis.call('HDEL', KEYS[4], name)
end
redis.call('HSET', KEYS[4], worker, ARGV[4])

local live = redis.call('ZCARD', KEYS[3])
local first, total = 5, #KEYS - 4
local floor, extra = math.floor(total / live), total % live
local holder, held, mine, counts, lapsed = {}, {}, 0, {}, false
for p = 0, total - 1 do
  local owner = redis.call('GET', KEYS[first + p])
  local name = owner and string.match(owner, '^(.*):%d+$')
  holder[p] = name
  if name == worker then
    mine = mine + 1
    held[p] = owner == me and 'kept' or 'taken'
  elseif name then
    counts[name] = (counts[name] or 0) + 1
  elseif string.sub(ARGV[5], p + 1, p + 1) == '1' then
    lapsed = true
  end
end

local above = 0
for name, count in pairs(counts) do
  if count > floor and redis.call('ZSCORE', KEYS[3], name) then above = above + 1 end
end
local target = above < extra and floor + 1 or floor

for p = total - 1, 0, -1 do
  if mine > target and held[p] then
    redis.call('DEL', KEYS[first + p])
    held[p] = nil
    mine = mine - 1
  end
end
for p = 0, total - 1 do
  local before = string.sub(ARGV[5], p + 1, p + 1) == '1'
  if mine < target and not holder[p] and before == lapsed then
    held[p] = 'taken'
    mine = mine + 1
  end
end

local owned, taken = {}, {}
for p = 0, total - 1 do
  if held[p] then
    redis.call('SET', KEYS[first + p], me, 'PX', ttl)
    owned[#owned + 1] = p
    if held[p] == 'taken' then taken[#taken + 1] = p end
  end
end
return {0, owned, taken}
