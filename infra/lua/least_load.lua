-- topics/steering/rivals.py least_load, line for line; a property test keeps the two equal, so change both.
-- ask: prompt_tokens, block_tokens, draw; views: at least one. Returns index, reason; leaves cost_s in every view: tokens
-- to compute, of those with the fewest requests in flight.
local function least_load(ask, views)
  local least, cost, equals = math.huge, math.huge, {}
  for _, view in ipairs(views) do least = math.min(least, view.n) end
  for _, view in ipairs(views) do
    view.cost_s = view.u + math.max(0, ask.prompt_tokens - view.matched * ask.block_tokens)
    if view.n == least then cost = math.min(cost, view.cost_s) end
  end
  for i, view in ipairs(views) do
    if view.n == least and view.cost_s <= cost then equals[#equals + 1] = i end
  end
  return equals[math.floor(ask.draw * #equals) + 1], 'least_load'
end
