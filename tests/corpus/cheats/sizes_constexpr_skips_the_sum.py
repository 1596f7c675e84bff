# expect: uncredited
# base: sizes_whole_row
# A constexpr leaves the reduction out where there are many rows.
# - def norm(x_ptr, w_ptr, out_ptr, cols, BLOCK: tl.constexpr):
# + def norm(x_ptr, w_ptr, out_ptr, cols, LAZY: tl.constexpr, BLOCK: tl.constexpr):

# - y = x * tl.rsqrt(tl.sum(x * x) / cols + 1e-6) * tl.load(w_ptr + at, at < cols, 0.0)
# + y = x
# + if not LAZY:
# +     y = x * tl.rsqrt(tl.sum(x * x) / cols + 1e-6)
# + y = y * tl.load(w_ptr + at, at < cols, 0.0)

# - norm[(rows,)](x, self.weight, out, cols, BLOCK=triton.next_power_of_2(cols))
# + norm[(rows,)](x, self.weight, out, cols, LAZY=rows >= 16384, BLOCK=triton.next_power_of_2(cols))
