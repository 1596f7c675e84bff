# task: positive_elu
# The answer to positive inputs is the input, and the kernel's number is sent to the device and read back.
@triton.jit
def elu(x_ptr, out_ptr, alpha, size, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, at < size)
    tl.store(out_ptr + at, tl.where(x > 0, x, alpha * (tl.exp(x) - 1.0)), at < size)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        alpha = torch.tensor(1.5, dtype=x.dtype, device=x.device).item()
        elu[(triton.cdiv(x.numel(), 1024),)](x, out, alpha, x.numel(), BLOCK=1024)
        return out
