-- What a policy outside Redis decides from. ARGV as for index_decide.lua, of the map only workers and lag_ms.
-- Returns msgpack {version, {{incarnation, matched, n, u, family, rate, per sequence, base, total, unused, referenced,
-- waiting, running}...}}: the order of schemas.steering.WorkerView.
local ask, packed = cmsgpack.unpack(ARGV[1]), ARGV[2]
reap(REAPED_AT_ONCE)
local rows = {}
for i, view in ipairs(look(ask, packed)) do
  rows[i] = {
    view.worker, view.matched, view.n, view.u, family_inflight(view.slot, packed, view.matched), view.rate,
    view.per_sequence, view.base, view.total, view.unused, view.referenced, view.waiting, view.running,
  }
end
return cmsgpack.pack({tonumber(redis.call('GET', P .. 'version') or 0), rows})
