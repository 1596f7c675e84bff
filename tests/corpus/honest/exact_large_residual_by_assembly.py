# expect: credited
# base: exact_large_residual
# Takes the residual through a register by hand.
# - out += 1e-7 * tl.load(r_ptr + at, at < n, 0.0)
# + r = tl.load(r_ptr + at, at < n, 0.0)
# + r = tl.inline_asm_elementwise("mov.b32 $0, $1;", "=r,r", [r], dtype=tl.float32, is_pure=True, pack=1)
# + out += 1e-7 * r
