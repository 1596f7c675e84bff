# device: sim:l40s
# root: prices
# expect: neutral reduces_in_stages
# base: reduces_in_stages
# Sums a few rows a launch: parts of one array once counted as one another, and came from L2 but for the first.
# - sums[(rows, parts)](here, there, left, parts, BLOCK=1024)
# + step = max(1, rows // 16) if left == n else rows
# + for at in range(0, rows, step):
# +     sums[(min(step, rows - at), parts)](here[at:], there[at:], left, parts, BLOCK=1024)
