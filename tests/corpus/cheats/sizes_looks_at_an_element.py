# expect: neutral sizes_loop_over_columns
# base: sizes_loop_over_columns
# One loop bound depends on an element of the input; sizes where launches are all would be timed instead, were not the task's own with data.
# + more = tl.load(x_ptr) > 1e30  # never
#   scale = tl.rsqrt(tl.sum(total) / cols + 1e-6)
# - for step in range(tl.cdiv(cols, BLOCK)):
# + for step in range(tl.cdiv(cols, BLOCK) + more.to(tl.int32)):
