# base: laid_out_in_a_wider_buffer
# A kernel copies rows in reverse, PyTorch's operator does the work and turns them back.
# - laid = torch.empty(rows, cols + 32, device=x.device)
# - move[(triton.cdiv(n, 1024),)](x, laid, n, cols, cols + 32, BLOCK=1024)
# - return self.norm(laid[:, :cols])
# + laid = torch.empty_like(x)
# + move[(triton.cdiv(n, 1024),)](x, laid, n, rows, cols, BLOCK=1024)
# + return self.norm(laid).flip(0)

@triton.jit
def move(x_ptr, out_ptr, n, rows, cols, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + (rows - 1 - at // cols) * cols + at % cols, tl.load(x_ptr + at, at < n), at < n)
