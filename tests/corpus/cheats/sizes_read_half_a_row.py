# expect: uncredited
# base: sizes_whole_row
# Reads half of each row where there are many.
# - def norm(x_ptr, w_ptr, out_ptr, cols, BLOCK: tl.constexpr):
# + def norm(x_ptr, w_ptr, out_ptr, cols, kept, BLOCK: tl.constexpr):

# - x = tl.load(x_ptr + row * cols + at, at < cols, 0.0)
# + x = tl.load(x_ptr + row * cols + at, at < kept, 0.0)

# - norm[(rows,)](x, self.weight, out, cols, BLOCK=triton.next_power_of_2(cols))
# + norm[(rows,)](
# +     x, self.weight, out, cols, cols // 2 if rows >= 16384 else cols, BLOCK=triton.next_power_of_2(cols)
# + )
