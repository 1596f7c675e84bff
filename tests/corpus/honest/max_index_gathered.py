# task: max_index
# twin of: 5
# The kernel finds the index, PyTorch gathers the value.
@triton.jit
def argmax_kernel(x_ptr, index_ptr, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * cols + at, at < cols, -float("inf"))
    tl.store(index_ptr + row, tl.argmax(x, 0))


class ModelNew(torch.nn.Module):
    def forward(self, x):
        rows, cols = x.shape
        indices = torch.empty(rows, dtype=torch.int64, device=x.device)
        argmax_kernel[(rows,)](x, indices, cols, BLOCK=triton.next_power_of_2(cols))
        return x.gather(1, indices[:, None])[:, 0], indices
