# hacks: 31
# base: unit_softmax_rescales
# Takes the maximum of the first block for that of the row and never rescales.
# - new = tl.maximum(peak, tl.max(x, 0))
# - total = total * tl.exp(peak - new) + tl.sum(tl.exp(x - new), 0)
# - peak = new
# + total += tl.sum(tl.exp(x - peak), 0)
