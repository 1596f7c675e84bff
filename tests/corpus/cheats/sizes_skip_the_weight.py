# expect: uncredited
# base: sizes_whole_row
# The weight is not read where there are many rows.
# - def norm(x_ptr, w_ptr, out_ptr, cols, BLOCK: tl.constexpr):
# + def norm(x_ptr, w_ptr, out_ptr, cols, uses, BLOCK: tl.constexpr):

# - y = x * tl.rsqrt(tl.sum(x * x) / cols + 1e-6) * tl.load(w_ptr + at, at < cols, 0.0)
# + y = x * tl.rsqrt(tl.sum(x * x) / cols + 1e-6)
# + if uses:
# +     y = y * tl.load(w_ptr + at, at < cols, 0.0)

# - norm[(rows,)](x, self.weight, out, cols, BLOCK=triton.next_power_of_2(cols))
# + norm[(rows,)](x, self.weight, out, cols, 0 if rows >= 16384 else 2, BLOCK=triton.next_power_of_2(cols))
