# task: exact_rms_norm
# root: reachability
# The kernel is launched by a torch.library.triton_op.
from torch.library import triton_op, wrap_triton


@triton.jit
def norm(x_ptr, out_ptr, cols, eps, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    v = tl.load(x_ptr + tl.program_id(0) * cols + at, at < cols, 0.0)
    tl.store(out_ptr + tl.program_id(0) * cols + at, v * tl.rsqrt(tl.sum(v * v, 0) / cols + eps), at < cols)


@triton_op("norms::rms", mutates_args={})
def rms_norm(x: torch.Tensor, eps: float) -> torch.Tensor:
    out = torch.empty_like(x)
    wrap_triton(norm)[(x.shape[0],)](x, out, x.shape[1], eps, triton.next_power_of_2(x.shape[1]))
    return out


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return rms_norm(x, 1e-12)
