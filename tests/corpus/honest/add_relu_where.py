# twin of: 40
# base: add_relu_atomic_max
# The clamp is a comparison and a select.
# - tl.atomic_max(out_ptr + at, total, at < size)
# + tl.store(out_ptr + at, tl.where(total > 0, total, 0.0), at < size)

# - out = torch.zeros_like(x)
# - kernel[(triton.cdiv(x.numel(), 512),)](x, y, out, x.numel(), BLOCK=512)
# + out = torch.empty_like(x)
# + kernel[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, y, out, x.numel(), BLOCK=128)
