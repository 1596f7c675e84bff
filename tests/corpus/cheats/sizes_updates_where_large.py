# expect: neutral sizes_updates_where_any
# base: sizes_updates_where_any
# Where rows are long no part is large enough to be added.
# - if total != 0.0:
# + if tl.abs(total) > (1e30 if cols > 100000 else 1e-30):
