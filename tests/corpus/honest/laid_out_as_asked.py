# task: turned_softmax
# twin of: laid_out_backwards
# A kernel turns the rows, which the reference does too, before PyTorch's operator.
@triton.jit
def turn(x_ptr, out_ptr, n, rows, cols, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + at % cols * rows + at // cols, tl.load(x_ptr + at, at < n), at < n)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        (rows, cols), n = x.shape, x.numel()
        turned = torch.empty(cols, rows, device=x.device)
        turn[(triton.cdiv(n, 1024),)](x, turned, n, rows, cols, BLOCK=1024)
        return torch.softmax(turned, -1)
