# task: transpose_to_half
# twin of: 7
# The task is a cast and a transpose, and an own kernel does both.
@triton.jit
def transpose_kernel(x_ptr, out_ptr, rows, cols, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    j = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    keep = (i[:, None] < rows) & (j[None, :] < cols)
    tl.store(out_ptr + j[None, :] * rows + i[:, None], tl.load(x_ptr + i[:, None] * cols + j[None, :], keep), keep)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        rows, cols = x.shape
        out = torch.empty(cols, rows, dtype=torch.float16, device=x.device)
        transpose_kernel[triton.cdiv(rows, 16), triton.cdiv(cols, 16)](x, out, rows, cols, BLOCK=16)
        return out
