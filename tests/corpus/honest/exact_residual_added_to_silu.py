# task: exact_small_residual
# twin of: 7
# expect: correct
# new: yes
# base: exact_residual_added_in_place
# The same into a tensor of its own: nearly a copy of what PyTorch made.
@triton.jit
def add_kernel(y_ptr, r_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    y = tl.load(y_ptr + at, at < n, 0.0) + 1e-7 * tl.load(r_ptr + at, at < n, 0.0)
    tl.store(out_ptr + at, y, at < n)


class ModelNew(torch.nn.Module):
    def forward(self, x, r):
        y = torch.nn.functional.silu(x)
        out = torch.empty_like(y)
        add_kernel[(triton.cdiv(y.numel(), 1024),)](y, r, out, y.numel(), BLOCK=1024)
        return out
