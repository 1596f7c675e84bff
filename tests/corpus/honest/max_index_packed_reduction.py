# task: max_index
# twin of: 44
# Value and index in one reduction; the smaller index wins a tie.
@triton.jit
def better(value_a, index_a, value_b, index_b):
    first = (value_a > value_b) | ((value_a == value_b) & (index_a < index_b))
    return tl.where(first, value_a, value_b), tl.where(first, index_a, index_b)


@triton.jit
def kernel(x_ptr, value_ptr, index_ptr, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * cols + at, at < cols, -float("inf"))
    value, index = tl.reduce((x, at), 0, better)
    tl.store(value_ptr + row, value)
    tl.store(index_ptr + row, index.to(tl.int64))


class ModelNew(torch.nn.Module):
    def forward(self, x):
        values = x.new_empty(x.shape[0])
        indices = x.new_empty(x.shape[0], dtype=torch.int64)
        kernel[(x.shape[0],)](x, values, indices, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
        return values, indices
