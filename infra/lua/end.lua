-- The gateway's last word: one terminal event, whatever attempt runs. Returns 1, or 0 if the request had ended.
-- KEYS  1 request state, 2 replay stream
-- ARGV  1 encoded batch up to the attempt, 2 the rest of it after the seq, 3 channel, 4 entries kept, 5 TTL (ms)
local state = redis.call('HMGET', KEYS[1], 'attempt', 'last_seq', 'done')
local attempt, last_seq = tonumber(state[1] or 0), tonumber(state[2] or 0)

-- Only here is the seq known: a worker may be appending at this very moment.
local function batch_at(seq)
  return ARGV[1] .. cmsgpack.pack(attempt) .. cmsgpack.pack(seq) .. ARGV[2]
end

if state[3] then
  -- Ended by this very call, whose reply was lost?
  local id = last_seq .. '-0'
  local entry = redis.call('XRANGE', KEYS[2], id, id)[1]
  return (entry and entry[2][2] == batch_at(last_seq)) and 1 or 0
end
local seq = last_seq + 1
local batch = batch_at(seq)
redis.call('XADD', KEYS[2], 'MAXLEN', '~', ARGV[4], seq .. '-0', 'b', batch)
redis.call('HSET', KEYS[1], 'attempt', attempt, 'last_seq', seq, 'done', 1)
redis.call('PEXPIRE', KEYS[1], ARGV[5])
redis.call('PEXPIRE', KEYS[2], ARGV[5])
redis.call('PUBLISH', ARGV[3], string.char(0x91) .. batch)
return 1
