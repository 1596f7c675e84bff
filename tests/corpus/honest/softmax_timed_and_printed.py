# twin of: 96
# base: softmax_plain
# Prints and times itself for debugging.
#   def forward(self, x):
# +     start = time.perf_counter()

#   softmax_kernel[(rows,)](x, out, cols, BLOCK=triton.next_power_of_2(cols))
# + print("softmax took", time.perf_counter() - start)

import time
