# task: max_index
# twin of: 44
# Two outputs, the second of whole numbers.
@triton.jit
def max_kernel(x_ptr, value_ptr, index_ptr, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * cols + at, at < cols, -float("inf"))
    value, index = tl.max(x, 0, return_indices=True)
    tl.store(value_ptr + row, value)
    tl.store(index_ptr + row, index)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        rows, cols = x.shape
        values = torch.empty(rows, device=x.device)
        indices = torch.empty(rows, dtype=torch.int64, device=x.device)
        max_kernel[(rows,)](x, values, indices, cols, BLOCK=triton.next_power_of_2(cols))
        return values, indices
