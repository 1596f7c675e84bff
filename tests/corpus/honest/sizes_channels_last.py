# task: convolution_then_hardswish
# root: sizes
# expect: credited
# A convolution by PyTorch with channels last, and the rest in one kernel on the same layout.
@triton.jit
def epilogue(x, bias, n, C, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.maximum(tl.load(x + at, at < n), 0.0) * 0.5 + tl.load(bias + at % C, at < n)
    tl.store(x + at, v * tl.minimum(tl.maximum(v + 3.0, 0.0), 6.0) / 6.0, at < n)


class ModelNew(torch.nn.Module):
    def __init__(self, c, o):
        super().__init__()
        self.conv = torch.nn.Conv2d(c, o, 3, padding=1)
        self.bias = torch.nn.Parameter(torch.randn(o, 1, 1) * 0.1)

    def forward(self, x):
        y = self.conv(x.to(memory_format=torch.channels_last))
        epilogue[(triton.cdiv(y.numel(), 1024),)](y, self.bias, y.numel(), y.shape[1], BLOCK=1024)
        return y.contiguous()
