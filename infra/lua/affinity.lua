-- topics/steering/affinity.py, line for line; a property test keeps the two equal, so change both.
-- ask: prompt_tokens, prompt_blocks, block_tokens, expected_output_tokens; views: at least one. Returns index, reason;
-- leaves own_s and cost_s in every view. family_of(view): requests in flight there under this prompt's prefix.
local function price(ask, view, params)
  view.own_s = (ask.prompt_tokens - view.matched * ask.block_tokens) / view.rate
  local queued_s = view.u / view.rate
  local answer_s = params.answer_weight * ask.expected_output_tokens * view.base
  local decode_s = params.decode_weight * ask.expected_output_tokens * view.per_sequence * view.n
  view.cost_s = queued_s + decode_s + answer_s + view.own_s
end

local function cheapest_of(views, eligible)
  local best
  for i, view in ipairs(views) do
    if eligible(view) and (not best or view.cost_s < views[best].cost_s) then best = i end
  end
  return best
end

local function roomiest(views, cheapest)
  local bound_s, best = cheapest.cost_s + cheapest.own_s, nil
  for i, view in ipairs(views) do
    if view.cost_s <= bound_s then
      local top = best and views[best]
      if not top or view.unused > top.unused or (view.unused == top.unused and view.referenced < top.referenced) then
        best = i
      end
    end
  end
  return best
end

local function stick(home, new, params, family_of)
  if new.unused >= params.fresh_share * new.total then return 1 end
  local share = home.n > 0 and family_of(home) / home.n or 0
  if share == 0 then return math.huge end
  return math.max(1, params.family_share / share)
end

local function moving_price(ask, home, new, params, family_of)
  local recompute_s = math.max(0, new.own_s - home.own_s)
  local evicts = new.unused < ask.prompt_blocks - new.matched
  if recompute_s == 0 then return 0 end
  return recompute_s * (evicts and 2 or 1) * stick(home, new, params, family_of)
end

local function affinity(ask, views, params, family_of)
  local best_match = 0
  for _, view in ipairs(views) do
    price(ask, view, params)
    best_match = math.max(best_match, view.matched)
  end
  local cheapest = cheapest_of(views, function() return true end)
  if best_match <= params.cold_share * ask.prompt_blocks then return roomiest(views, views[cheapest]), 'cold' end
  local home = cheapest_of(views, function(view) return view.matched >= params.holder_share * best_match end)
  if home == cheapest then return home, 'home' end
  local gap_s = views[home].cost_s - views[cheapest].cost_s
  if gap_s > moving_price(ask, views[home], views[cheapest], params, family_of) then return cheapest, 'second_home' end
  return home, 'stay'
end
