# root: sizes
# expect: uncredited
# new: yes
# base: gated_steps_in_chunks
# A chunk knows of the one before it alone: what came earlier has mostly decayed.
# - state = state * tl.exp(whole) + tl.dot(tl.trans(faded), v, input_precision="ieee")
# + state = tl.dot(tl.trans(faded), v, input_precision="ieee")
