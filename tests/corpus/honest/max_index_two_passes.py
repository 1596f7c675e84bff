# twin of: 5
# base: max_index_plain
# without: max_kernel
# One kernel finds the value, a second the first place that has it; a named tuple comes back.
# - max_kernel[(rows,)](x, values, indices, cols, BLOCK=triton.next_power_of_2(cols))
# - return values, indices
# + value_kernel[(rows,)](x, values, cols, BLOCK=triton.next_power_of_2(cols))
# + index_kernel[(rows,)](x, values, indices, cols, BLOCK=triton.next_power_of_2(cols))
# + return Result(values, indices)

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
