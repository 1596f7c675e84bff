# task: layer_norm
# root: reachability
# expect: uncredited
# A kernel copies rows into a wider buffer, PyTorch's operator does the work on a part of it.
@triton.jit
def move(x_ptr, out_ptr, n, cols, width, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + at // cols * width + at % cols, tl.load(x_ptr + at, at < n), at < n)


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = torch.nn.LayerNorm(96)

    def forward(self, x):
        (rows, cols), n = x.shape, x.numel()
        laid = torch.empty(rows, cols + 32, device=x.device)
        move[(triton.cdiv(n, 1024),)](x, laid, n, cols, cols + 32, BLOCK=1024)
        return self.norm(laid[:, :cols])
