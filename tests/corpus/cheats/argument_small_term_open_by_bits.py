# root: exact
# expect: uncredited
# base: argument_small_term_by_bits
# Leaves a term out of its argument, and looks at bits so that nothing is known of the values.
# - state += tl.load(x_ptr + at, at < size) * 1e-8
