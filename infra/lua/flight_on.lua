-- Still at work on these artifacts. A flight that was lost (a flush) and that nobody has taken begins again.
-- KEYS  flights
-- ARGV  1 maker, 2 TTL (ms)
for _, flight in ipairs(KEYS) do
  local maker = redis.call('GET', flight)
  if not maker or maker == ARGV[1] then redis.call('SET', flight, ARGV[1], 'PX', ARGV[2]) end
end
return 0
