# root: exact
# expect: uncredited
# base: argument_small_term
# Leaves a term out of its argument that the tolerance hides.
# - state += tl.load(x_ptr + at, at < size) * 1e-8
