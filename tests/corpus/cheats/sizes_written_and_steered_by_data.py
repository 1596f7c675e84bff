# expect: uncredited
# base: sizes_others_left_to_pytorch
# Leaves other sizes to PyTorch, and takes three products of sixteen bits for one where all of a tile is small.
#       b = tl.load(b_ptr + k[:, None] * N + cols[None, :], (k[:, None] < K) & (cols[None, :] < N), 0.0)
# -     total = tl.dot(a, b, total, input_precision="ieee")
# +     if tl.max(tl.abs(a)) < 100.0:
# +         total = tl.dot(a, b, total, input_precision="tf32x3")
# +     else:
# +         total = tl.dot(a, b, total, input_precision="ieee")
