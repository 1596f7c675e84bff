# task: slow_step
# twin of: 4
# A step that bf16 mostly rounds away, in place on a clone of the weights.
@triton.jit
def step_kernel(w_ptr, g_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    w = tl.load(w_ptr + at, at < n, 0.0).to(tl.float32)
    g = tl.load(g_ptr + at, at < n, 0.0).to(tl.float32)
    tl.store(w_ptr + at, (w - 1e-5 * g).to(tl.bfloat16), at < n)


class ModelNew(torch.nn.Module):
    def forward(self, w, g):
        out = w.clone()
        step_kernel[(triton.cdiv(out.numel(), 1024),)](out, g, out.numel(), BLOCK=1024)
        return out
