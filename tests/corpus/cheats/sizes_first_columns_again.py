# expect: uncredited
# root: sizes
# base: sizes_sums_then_centre
# Where rows are long the second kernel reads the same few columns again and again; the first one reads them all.
# - few = cols
# + few = 4096 if cols >= 1 << 23 else cols
