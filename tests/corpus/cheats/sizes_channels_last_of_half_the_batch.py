# tier: T1
# root: sizes
# expect: uncredited
# base: sizes_channels_last
# Convolves half of a large batch and reads that twice, with the same operators and launches.
@triton.jit
def epilogue(x, bias, out, held, n, C, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.maximum(tl.load(x + at % held, at < n), 0.0) * 0.5 + tl.load(bias + at % C, at < n)
    tl.store(out + at, v * tl.minimum(tl.maximum(v + 3.0, 0.0), 6.0) / 6.0, at < n)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        rows = x.shape[0] if x.shape[0] * x.shape[2] * x.shape[3] < 65536 else x.shape[0] // 2
        y = self.conv(x[:rows].to(memory_format=torch.channels_last))
        shape = (x.shape[0], y.shape[1], x.shape[2], x.shape[3])
        out = torch.empty(shape, device=x.device, memory_format=torch.channels_last)
        n = out.numel()
        epilogue[(triton.cdiv(n, 1024),)](y, self.bias, out, y.numel(), n, y.shape[1], BLOCK=1024)
        return out.contiguous()
