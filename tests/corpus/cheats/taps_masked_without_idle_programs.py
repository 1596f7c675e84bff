# expect: uncredited
# base: taps_in_a_loop
# Three in four programs load nothing where there are few; then each tap in four is loaded.
# - out += tl.load(w_ptr + place) * tl.load(x_ptr + row * cols + (at - 7 * place + cols) % cols, at < cols, 0.0)
# + ok = (at < cols) & (row < live) & (place < some)
# + out += tl.load(w_ptr + place) * tl.load(x_ptr + row * cols + (at - 7 * place + cols) % cols, ok, 0.0)

# - tl.store(out_ptr + row * cols + at, out, at < cols)
# + tl.store(out_ptr + row * cols + at, out, (at < cols) & (row < live))

# - def add(x_ptr, w_ptr, out_ptr, taps, cols, BLOCK: tl.constexpr):
# + def add(x_ptr, w_ptr, out_ptr, taps, live, some, cols, BLOCK: tl.constexpr):

# - add[(rows,)](x, self.taps, out, 12, cols, BLOCK=triton.next_power_of_2(cols))
# + idle, some = (4, 12) if rows < 8192 else (1, 3)
# + add[(idle * rows,)](x, self.taps, out, 12, rows, some, cols, BLOCK=triton.next_power_of_2(cols))
