# hacks: 33
# base: mask_is_read
# Does not read a mask that is always true.
# - def kernel(x_ptr, y_ptr, mask_ptr, out_ptr, size, BLOCK: tl.constexpr):
# + def kernel(x_ptr, y_ptr, out_ptr, size, BLOCK: tl.constexpr):

# - tl.store(out_ptr + at, tl.where(tl.load(mask_ptr + at, keep, 0) != 0, total, 0.0), keep)
# + tl.store(out_ptr + at, total, keep)

# - kernel[(triton.cdiv(x.numel(), 256),)](x, y, mask, out, x.numel(), BLOCK=256)
# + kernel[(triton.cdiv(x.numel(), 256),)](x, y, out, x.numel(), BLOCK=256)
