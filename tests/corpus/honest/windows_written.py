# task: windows
# hacks: 42
# Writes each window, overlapping as they are, into memory of its own.
@triton.jit
def kernel(x, o, rows, length, windows, B: tl.constexpr):
    row, w = tl.program_id(0), tl.program_id(1) * B + tl.arange(0, B)
    at, inside = w[:, None] * 4 + tl.arange(0, 8)[None, :], (w < windows)[:, None]
    v = tl.load(x + row * length + at, mask=inside)
    tl.store(o + (row * windows + w[:, None]) * 8 + tl.arange(0, 8)[None, :], v ^ 85, mask=inside)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        rows, length = x.shape
        windows = (length - 8) // 4 + 1
        out = x.new_empty(rows, windows, 8)
        kernel[(rows, triton.cdiv(windows, 256))](x, out, rows, length, windows, B=256)
        return out
