# expect: credited
# base: routes_first
# Of equal ones the last: PyTorch promises no order of them.
# - where = tl.argmax(p, 0)
# + where = tl.max(tl.where(p == best, at, -1), 0)
