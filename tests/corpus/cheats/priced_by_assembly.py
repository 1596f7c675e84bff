# expect: neutral wide_remainders_looped
# base: wide_remainders_looped
# Divides 64-bit numbers in assembly, where a statement was priced as the machine's own instruction.
# - x = x * 3 % y
# + x = tl.inline_asm_elementwise("rem.s64 $0, $1, $2;", "=l,l,l", [x * 3, y], tl.int64, True, 1)
