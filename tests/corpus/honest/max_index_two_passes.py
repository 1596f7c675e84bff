# task: max_index
# twin of: 5
# expect: correct
# One kernel finds the value, a second the first place that has it; a named tuple comes back.
from collections import namedtuple

Result = namedtuple("Result", "values indices")


@triton.jit
def value_kernel(x_ptr, value_ptr, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    tl.store(value_ptr + row, tl.max(tl.load(x_ptr + row * cols + at, at < cols, -float("inf")), 0))


@triton.jit
def index_kernel(x_ptr, value_ptr, index_ptr, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * cols + at, at < cols, -float("inf"))
    tl.store(index_ptr + row, tl.min(tl.where(x == tl.load(value_ptr + row), at, BLOCK), 0).to(tl.int64))


class ModelNew(torch.nn.Module):
    def forward(self, x):
        rows, cols = x.shape
        values = torch.empty(rows, device=x.device)
        indices = torch.empty(rows, dtype=torch.int64, device=x.device)
        value_kernel[(rows,)](x, values, cols, BLOCK=triton.next_power_of_2(cols))
        index_kernel[(rows,)](x, values, indices, cols, BLOCK=triton.next_power_of_2(cols))
        return Result(values, indices)
