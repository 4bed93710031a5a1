-- A worker's gauges and learned speed, with every tick.
-- ARGV  1 incarnation, 2 referenced blocks, 3 waiting, 4 running, 5 rate, 6 seconds per sequence, 7 seconds a step
-- Returns 1, or 0 when that life is over.
local slot = redis.call('HGET', P .. 'slots', ARGV[1])
if not slot then return 0 end
redis.call('HSET', P .. 'w:' .. slot, 'referenced', ARGV[2], 'waiting', ARGV[3], 'running', ARGV[4],
  'rate', ARGV[5], 'per_sequence', ARGV[6], 'base', ARGV[7])
return 1
