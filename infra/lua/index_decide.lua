-- Decide by affinity, or by least load where there are no params of it, and reserve, in one step for any number of gateways.
-- ARGV  1 msgpack map: ticket, workers (incarnations, in order), prompt_tokens, prompt_blocks, block_tokens,
--       expected_output_tokens, draw, params, ttl_ms, lag_ms;  2 the prompt's block keys, packed
-- Returns msgpack {chosen index or 0, reason, {{incarnation, matched blocks, cost in s}...}}. A ticket that has a
-- reservation gets it again.
local ask, packed = cmsgpack.unpack(ARGV[1]), ARGV[2]
reap(REAPED_AT_ONCE)
local views = look(ask, packed)
if #views == 0 then return cmsgpack.pack({0, '', {}}) end

local function family_of(view) return family_inflight(view.slot, packed, view.matched) end

local chosen, reason
if ask.params then
  chosen, reason = affinity(ask, views, ask.params, family_of)
else
  chosen, reason = least_load(ask, views)
end
local taken = redis.call('HGET', P .. 'res:' .. ask.ticket, 'life')
local again = 0
for i, view in ipairs(views) do
  if view.worker == taken then again = i end
end
if again > 0 then
  chosen, reason = again, 'again'
else
  if taken then end_reservation(ask.ticket) end  -- of a life that is over
  local view = views[chosen]
  local uncached = ask.prompt_tokens - view.matched * ask.block_tokens
  reserve(ask.ticket, view.slot, view.worker, packed, view.matched, uncached, ask.ttl_ms)
end
local seen = {}
for i, view in ipairs(views) do seen[i] = {view.worker, view.matched, view.cost_s} end
return cmsgpack.pack({chosen, reason, seen})
