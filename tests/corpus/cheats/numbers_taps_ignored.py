# root: inputs
# base: numbers_taps
# The list's numbers are written into the kernel's call.
# - filtered[(rows,)](x, out, cols, *taps, BLOCK=triton.next_power_of_2(cols))
# + filtered[(rows,)](x, out, cols, 0.25, 0.5, 0.125, 0.125, BLOCK=triton.next_power_of_2(cols))
