-- A worker's gauges and learned speed, with every tick.
-- ARGV  1 incarnation, 2 unused blocks, 3 referenced blocks, 4 waiting, 5 running, 6 rate, 7 seconds per sequence,
--       8 seconds a step
-- Returns 1, or 0 when that life is over.
local slot = redis.call('HGET', P .. 'slots', ARGV[1])
if not slot then return 0 end
redis.call('HSET', P .. 'w:' .. slot, 'unused', ARGV[2], 'held_then', redis.call('SCARD', P .. 'held:' .. slot),
  'referenced', ARGV[3], 'waiting', ARGV[4], 'running', ARGV[5], 'rate', ARGV[6], 'per_sequence', ARGV[7],
  'base', ARGV[8])
return 1
