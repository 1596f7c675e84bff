# task: literal_bins
# root: sizes
# expect: credited
# Counts of bins in registers, added up by atomics; the size is written as a shift.
@triton.jit
def count(x_ptr, out_ptr, n, BINS: tl.constexpr, BLOCK: tl.constexpr, ROUNDS: tl.constexpr):
    counts = tl.zeros((BINS,), tl.int32)
    for i in range(ROUNDS):
        at = (tl.program_id(0) * ROUNDS + i) * BLOCK + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + at, at < n, -1.0)
        inside = (at < n) & (x >= 0.0) & (x <= 1.0)
        bins = tl.minimum((x * BINS).to(tl.int32), BINS - 1)
        counts += tl.histogram(tl.where(inside, bins, 0), BINS, mask=inside)
    tl.atomic_add(out_ptr + tl.arange(0, BINS), counts.to(tl.float32))


class ModelNew(torch.nn.Module):
    def forward(self, x):
        out = torch.zeros(64, device=x.device, dtype=x.dtype)
        count[(triton.cdiv(x.numel(), 1024 * 16),)](x, out, x.numel(), BINS=64, BLOCK=1024, ROUNDS=16)
        return out
