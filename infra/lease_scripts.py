"""The Lua side of leases.py: one script per verb, so each is one round trip and atomic. Redis' clock is the only one.

KEYS are epoch, alive:<worker>, workers, beats, then the lease keys the verb needs; ARGV[1..3] are the worker's name,
its epoch and the lease time in ms. A lease's value is `<worker>:<epoch>`.
"""

# Fenced means: another life of this name has joined since. An empty epoch hash means that Redis lost its memory; the
# living re-enter it, so that a wipe does not kill a pool.
_HEAD = """
local worker, epoch, ttl = ARGV[1], ARGV[2], ARGV[3]
local me = worker .. ':' .. epoch
local known = redis.call('HGET', KEYS[1], worker)
local fenced = known and known ~= epoch
local function now_ms()
  local t = redis.call('TIME')
  return t[1] * 1000 + math.floor(t[2] / 1000)
end
"""

JOIN = """
local epoch = redis.call('HINCRBY', KEYS[1], ARGV[1], 1)
redis.call('SET', KEYS[2], epoch, 'PX', ARGV[2])
return epoch
"""

# ARGV[4] = beat, ARGV[5] = partitions held after the last tick, '1' or '0' each, tried first: after an outage longer
# than the lease time everybody comes back to what it had, and looks at the rest one tick later, when the others are
# back as well. Returns {fenced, owned, taken}.
#
# The share is floor(P/n), and one more for P%n workers. Who holds that one more keeps it while not too many do: a name
# that sorts first moves nothing when it joins. A script runs alone, so two can never give up the same surplus.
TICK = (
    _HEAD
    + """
if fenced then return {1, {}, {}} end
local now = now_ms()
redis.call('HSET', KEYS[1], worker, epoch)
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
local function take(preferred)
  for p = 0, total - 1 do
    local before = string.sub(ARGV[5], p + 1, p + 1) == '1'
    if mine < target and not holder[p] and not held[p] and before == preferred then
      held[p] = 'taken'
      mine = mine + 1
    end
  end
end
take(true)
if not lapsed then take(false) end

local owned, taken = {}, {}
for p = 0, total - 1 do
  if held[p] then
    redis.call('SET', KEYS[first + p], me, 'PX', ttl)
    owned[#owned + 1] = p
    if held[p] == 'taken' then taken[#taken + 1] = p end
  end
end
return {0, owned, taken}
"""
)

_RELEASE = """
for k = 5, #KEYS do
  local owner = redis.call('GET', KEYS[k])
  if owner and string.match(owner, '^(.*):%d+$') == worker then redis.call('DEL', KEYS[k]) end
end
redis.call('ZREM', KEYS[3], worker)
redis.call('HDEL', KEYS[4], worker)
"""

# Returns fenced.
RETIRE = _HEAD + "if fenced then return 1 end\n" + _RELEASE + "redis.call('SET', KEYS[2], epoch, 'PX', ttl)\nreturn 0\n"

LEAVE = _HEAD + "if fenced then return 1 end\n" + _RELEASE + "redis.call('DEL', KEYS[2])\nreturn 0\n"

# KEYS are workers, beats, then the lease keys. Returns {owners, name and beat in turn}; a missing owner is ''.
VIEW = """
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
"""
