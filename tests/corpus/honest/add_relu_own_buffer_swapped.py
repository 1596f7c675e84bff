# task: add_relu
# twin of: 46
# Two scratch buffers take turns; the output is always fresh.
@triton.jit
def add_kernel(a_ptr, b_ptr, out_ptr, size, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + at, tl.load(a_ptr + at, at < size) + tl.load(b_ptr + at, at < size), at < size)


@triton.jit
def relu_kernel(a_ptr, out_ptr, size, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + at, tl.maximum(tl.load(a_ptr + at, at < size), 0.0), at < size)


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.scratch, self.turn = {}, 0

    def forward(self, x, y):
        self.turn ^= 1
        key = (self.turn, x.shape)
        if key not in self.scratch:
            self.scratch[key] = torch.empty_like(x)
        scratch, out, grid = self.scratch[key], torch.empty_like(x), (triton.cdiv(x.numel(), 512),)
        add_kernel[grid](x, y, scratch, x.numel(), BLOCK=512)
        relu_kernel[grid](scratch, out, x.numel(), BLOCK=512)
        return out
