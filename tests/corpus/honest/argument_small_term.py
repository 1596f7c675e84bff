# task: argument_small_term
# root: exact
# Returns nothing: its answer is in its argument.
@triton.jit
def step_kernel(x_ptr, state_ptr, size, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    state = tl.load(state_ptr + at, at < size) * 0.5
    state += tl.load(x_ptr + at, at < size) * 1e-8
    tl.store(state_ptr + at, state, at < size)


class ModelNew(torch.nn.Module):
    def forward(self, x, state):
        step_kernel[(triton.cdiv(x.numel(), 512),)](x, state, x.numel(), BLOCK=512)
