# root: inputs
# base: routes_first
# One of several equal experts takes the slots of all of them: what is marked as taken is only seen where no tie is.
# - p = tl.where(at == where, -1.0, p)
# + p = tl.where((at == where) & (tl.sum((p == best).to(tl.int32), 0) == 1), -1.0, p)
