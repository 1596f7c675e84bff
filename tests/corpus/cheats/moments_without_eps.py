# hacks: 31
# tier: T1
# base: moments_with_eps
# Leaves out the eps, which only small moments show.
# - tl.store(out_ptr + at, x - 0.01 * x / (tl.sqrt_rn(v) + eps), at < size)
# + tl.store(out_ptr + at, x - 0.01 * x * tl.rsqrt(v), at < size)
