# expect: uncredited
# base: sizes_pairs_of_numbers
# A quarter of all exponentials at large sizes, and as many other operations, on nothing.
# - tl.store(out_ptr + rows, tl.sum(total, 1), rows < n)
# + left = total * 0.0
# + for more in range(0, n - size + 64, 64):
# +     left = left * 0.5 + 0.0
# +     left = left * 0.5 + 0.0
# +     left = left * 0.5 + 0.0
# +     left = left * 0.5 + 0.0
# + tl.store(out_ptr + rows, tl.sum(total + left, 1), rows < n)

# - n, parts = x.shape[0], 1
# + n, parts = x.shape[0], 4 if x.shape[0] > 8192 else 1
