-- above compares tokens, which are decimals without leading zeros. It compares texts, because Lua's numbers are exact only
-- below 2^53.
local function above(a, b) return #a > #b or #a == #b and a > b end
