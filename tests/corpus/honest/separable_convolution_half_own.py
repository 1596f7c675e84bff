# task: separable_convolution
# device: sim:a100
# expect: credited
# Does the convolution by channels, and leaves that of width one, of more channels, to PyTorch.
@triton.jit
def kernel(x, w, o, channels, height, width, BY: tl.constexpr, BX: tl.constexpr):
    plane = tl.program_id(0)
    y, z = tl.program_id(1) * BY + tl.arange(0, BY), tl.program_id(2) * BX + tl.arange(0, BX)
    acc = tl.zeros((BY, BX), tl.float32)
    for dy in tl.static_range(3):
        for dx in tl.static_range(3):
            r, c = y[:, None] + dy - 1, z[None, :] + dx - 1
            inside = (r >= 0) & (r < height) & (c >= 0) & (c < width)
            v = tl.load(x + (plane * height + r) * width + c, mask=inside, other=0.0)
            acc += v * tl.load(w + plane % channels * 9 + dy * 3 + dx)
    inside = (y[:, None] < height) & (z[None, :] < width)
    tl.store(o + (plane * height + y[:, None]) * width + z[None, :], acc, mask=inside)


class ModelNew(torch.nn.Module):
    def __init__(self, channels, out):
        super().__init__()
        self.depthwise = torch.nn.Conv2d(channels, channels, 3, padding=1, groups=channels, bias=False)
        self.pointwise = torch.nn.Conv2d(channels, out, 1, bias=False)

    def forward(self, x):
        batch, channels, height, width = x.shape
        o = torch.empty_like(x)
        grid = (batch * channels, triton.cdiv(height, 4), triton.cdiv(width, 512))
        kernel[grid](x, self.depthwise.weight, o, channels, height, width, BY=4, BX=512)
        return self.pointwise(o)
