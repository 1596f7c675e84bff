# root: sizes
# expect: credited
# base: sizes_updates_meet
# Programs add to one of a few numbers, more of them where programs are more; a second kernel adds these up.
# - places = 1
# + places = min(64, triton.cdiv(n, 1 << 16))

# - return out[:1]
# + total = torch.empty(1, device=x.device)
# + few[(1,)](out, total, BLOCK=64)
# + return total

@triton.jit
def few(x_ptr, out_ptr, BLOCK: tl.constexpr):
    tl.store(out_ptr + tl.arange(0, 1), tl.sum(tl.load(x_ptr + tl.arange(0, BLOCK)), 0))
