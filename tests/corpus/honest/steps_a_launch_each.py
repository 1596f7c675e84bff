# task: stencil_steps
# root: sizes
# expect: credited
# A launch for each step, between two buffers.
@triton.jit
def step(x_ptr, out_ptr, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    mask = at < cols
    x = tl.load(x_ptr + row * cols + at, mask, 0.0)
    left = tl.load(x_ptr + row * cols + (at + cols - 1) % cols, mask, 0.0)
    right = tl.load(x_ptr + row * cols + (at + 1) % cols, mask, 0.0)
    tl.store(out_ptr + row * cols + at, 0.5 * x + 0.25 * (left + right) + 0.1 * tl.sin(x), mask)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        rows, cols = x.shape
        here, there = torch.empty_like(x), torch.empty_like(x)
        step[(rows,)](x, here, cols, BLOCK=triton.next_power_of_2(cols))
        for _ in range(15):
            step[(rows,)](here, there, cols, BLOCK=triton.next_power_of_2(cols))
            here, there = there, here
        return here
