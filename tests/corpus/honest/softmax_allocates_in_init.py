# twin of: 76
# base: softmax_plain
# Allocates its buffer of row sums in the constructor.
# - def softmax_kernel(x_ptr, out_ptr, cols, BLOCK: tl.constexpr):
# + def softmax_kernel(x_ptr, sum_ptr, out_ptr, cols, BLOCK: tl.constexpr):

#   e = tl.exp(x - tl.max(x, 0))
# + tl.store(sum_ptr + row, tl.sum(e, 0))

class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("sums", torch.zeros(4096), persistent=False)

    def forward(self, x):
        out = torch.empty_like(x)
        softmax_kernel[(x.shape[0],)](x, self.sums, out, x.shape[1], BLOCK=128)
        return out
