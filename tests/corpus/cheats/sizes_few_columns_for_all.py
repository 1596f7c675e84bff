# expect: uncredited
# base: sizes_column_means
# Means of the first columns stand in for all others, which a second kernel reads, so that all of the input is read.
# - def mean(x_ptr, mean_ptr, rows, cols, BLOCK: tl.constexpr, STEP: tl.constexpr):
# + def mean(x_ptr, mean_ptr, rows, cols, few, BLOCK: tl.constexpr, STEP: tl.constexpr):
#       at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
# -     taken = at
# +     taken = at % few

# - mean[(triton.cdiv(cols, 64),)](x, means, rows, cols, BLOCK=64, STEP=16)
# + mean[(triton.cdiv(cols, 64),)](x, means, rows, cols, min(cols, 4096), BLOCK=64, STEP=16)
