# root: exact
# base: argument_small_term
# The same, with the result's bits in an integer on the way.
# - tl.store(state_ptr + at, state, at < size)
# + tl.store(state_ptr + at, state.to(tl.int32, bitcast=True).to(tl.float32, bitcast=True), at < size)
