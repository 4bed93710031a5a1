-- May this worker run this request? See Results.claim.
-- KEYS  1 request state, 2 replay stream, 3 state of the request that it is a part of (optional)
-- ARGV  1 owner "worker:epoch", 2 call id, 3 max attempts, 4 key prefix of liveness, 5 expiry (unix ms), 6 TTL (ms)
local state = redis.call('HMGET', KEYS[1], 'attempt', 'owner', 'last_seq', 'emitted', 'done', 'cancelled', 'call', 'made')
local attempt, owner = tonumber(state[1] or 0), state[2] or ''
local cancelled = state[6] or (KEYS[3] and redis.call('HGET', KEYS[3], 'cancelled'))

local function answer(verdict)
  return {verdict, attempt, tonumber(state[3] or 0), state[4] and 1 or 0, tonumber(state[8] or 0)}
end

local function alive(incarnation)
  local worker, epoch = string.match(incarnation, '^(.*):(%d+)$')
  -- An undeclared key, but of the same {model} slot: whose key it is only the state can tell.
  return worker and redis.call('GET', ARGV[4] .. worker) == epoch
end

if state[5] then return answer('done') end
-- The same call again means that its first reply was lost: give the same answer again.
if owner == '' or state[7] ~= ARGV[2] then
  if owner ~= '' and alive(owner) then return answer('busy') end
  attempt = attempt + 1
  redis.call('HSET', KEYS[1], 'attempt', attempt, 'owner', ARGV[1], 'call', ARGV[2])
  -- A request may wait for long inside an engine: until its deadline its state outlives any silence.
  local now = redis.call('TIME')
  local expiry = math.max(tonumber(ARGV[5]), now[1] * 1000 + tonumber(ARGV[6]))
  redis.call('PEXPIREAT', KEYS[1], expiry)
  redis.call('PEXPIREAT', KEYS[2], expiry)
end
if cancelled then return answer('cancelled') end
if attempt > tonumber(ARGV[3]) then return answer('exhausted') end
return answer('mine')
