# base: sizes_atomic_parts
# new: yes
# Adds a part where it is not nothing: a branch that numbers decide, and that is priced as taken.
# - tl.atomic_add(out_ptr + row, total, part < last, sem="relaxed")
# + if tl.abs(total) > 1e-30:
# +     tl.atomic_add(out_ptr + row, total, part < last, sem="relaxed")
