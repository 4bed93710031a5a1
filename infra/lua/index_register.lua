-- A worker's life begins: give it a slot that no row mentions. Earlier lives of its name are over.
-- ARGV  1 worker name, 2 incarnation, 3 total blocks, 4 most slots; as in index_report.lua: 5 unused blocks,
--       6 referenced blocks, 7 waiting, 8 running, 9 rate, 10 seconds per sequence, 11 seconds a step
-- Returns 1 registered (also when it was), 0 all slots are taken, -1 a later life of that name has begun.
local mine = redis.call('HGET', P .. 'slots', ARGV[2])
if mine then return 1 end
local epoch = tonumber(string.match(ARGV[2], ':(%d+)$'))
local taken, all = {}, redis.call('HGETALL', P .. 'slots')
for i = 1, #all, 2 do
  taken[tonumber(all[i + 1])] = true
  local name, other = string.match(all[i], '^(.*):(%d+)$')
  if name == ARGV[1] then
    if tonumber(other) > epoch then return -1 end
    end_life(all[i], all[i + 1])
  end
end
for _, slot in ipairs(redis.call('SMEMBERS', P .. 'dirty')) do taken[tonumber(slot)] = true end
for slot = 0, tonumber(ARGV[4]) - 1 do
  if not taken[slot] then
    redis.call('HSET', P .. 'slots', ARGV[2], slot)
    redis.call('HSET', P .. 'w:' .. slot, 'life', ARGV[2], 'n', 0, 'u', 0, 'rate', ARGV[9], 'per_sequence', ARGV[10],
      'base', ARGV[11], 'total', ARGV[3], 'unused', ARGV[5], 'held_then', 0, 'referenced', ARGV[6], 'waiting', ARGV[7],
      'running', ARGV[8], 'seq', 0, 'fed_at', now_ms())
    return 1
  end
end
return 0