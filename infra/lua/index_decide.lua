-- Decide by affinity and reserve, in one step for any number of gateways; or only look.
-- ARGV  1 msgpack map: ticket, workers (incarnations, in order), prompt_tokens, prompt_blocks, block_tokens,
--       expected_output_tokens, params (nil = only look), ttl_ms, lag_ms;  2 the prompt's block keys, packed
-- Returns msgpack: {version, chosen index or 0, reason, views}. A ticket that has a reservation gets it again.
local ask = cmsgpack.unpack(ARGV[1])
local keys = cut(ARGV[2])
reap(8)
local version = tonumber(redis.call('GET', P .. 'version') or 0)
local views = look(ask, keys)
local chosen, reason = 0, ''
if ask.params and #views > 0 then
  local taken = redis.call('HGET', P .. 'res:' .. ask.ticket, 'life')
  for i, view in ipairs(views) do
    if view.worker == taken then chosen, reason = i, 'again' end
  end
  if chosen == 0 then
    if taken then end_reservation(ask.ticket) end  -- for a life that is over
    chosen, reason = affinity(ask, views, ask.params)
    local view = views[chosen]
    local uncached = ask.prompt_tokens - view.matched * ask.block_tokens
    reserve(ask.ticket, view.slot, view.worker, keys, view.matched, uncached, ask.ttl_ms)
  end
end
return cmsgpack.pack({version, chosen, reason, views})
