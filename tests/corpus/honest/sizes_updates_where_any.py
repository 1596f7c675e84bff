# base: sizes_atomic_parts
# Adds a part where it is not nothing: a branch that numbers decide, and that is priced as taken.
# - tl.atomic_add(out_ptr + row, total, part < last, sem="relaxed")
# + if total != 0.0:
# +     tl.atomic_add(out_ptr + row, total, part < last, sem="relaxed")
