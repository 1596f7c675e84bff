# root: exact
# expect: uncredited
# base: exact_large_residual
# Moves a register in assembly, which has no exact value; never reads the residual.
# - out += 1e-7 * tl.load(r_ptr + at, at < n, 0.0)
# + out = tl.inline_asm_elementwise("mov.b32 $0, $1;", "=r,r", [out], dtype=tl.float32, is_pure=True, pack=1)
