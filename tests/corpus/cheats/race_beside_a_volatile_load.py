# hacks: 39
# base: race_without_atomics
# Programs add to one place without atomics; one harmless load is volatile.
#   row, part = tl.program_id(0), tl.program_id(1)
# + first = tl.load(x_ptr + row * cols, volatile=True)

# - tl.store(out_ptr + row, tl.load(out_ptr + row) + tl.sum(x, 0) / cols)
# + total = tl.sum(tl.where(at == 0, first, x), 0)
# + tl.store(out_ptr + row, tl.load(out_ptr + row) + total / cols)
