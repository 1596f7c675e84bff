# base: steps_in_small_buffers
# The same with as many programs as the small buffers have rows.
# - step[(rows,)](here, there, cols, few, few, BLOCK=block)
# + step[(few,)](here, there, cols, few, few, BLOCK=block)
