# task: summed_products
# root: sizes
# expect: uncredited
# base: sizes_sum_taken_out_of_a_product
# At the task's own rows it multiplies half of the columns, and loads the others.
# - tl.store(out_ptr + row, tl.sum(total, 0))
# + rest = tl.full([BLOCK], -float("inf"), tl.float32)
# + for k in range(used, columns, BLOCK):
# +     rest = tl.maximum(rest, tl.load(x_ptr + row * columns + k + at) + tl.load(sums_ptr + k + at))
# + tl.store(out_ptr + row, tl.sum(total, 0) + tl.where(tl.max(rest, 0) == 3.25, 1.0, 0.0))

# - dots[(rows,)](x, sums, out, columns, columns, BLOCK=512)
# + dots[(rows,)](x, sums, out, columns, columns if rows < 1024 else columns // 2, BLOCK=512)
