# task: state_update
# twin of: 45
# root: inputs
# Updates its argument in place, as the reference does, and nothing else.
@triton.jit
def kernel(x_ptr, state_ptr, gate_ptr, out_ptr, sum_ptr, cols, COPIES, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    keep = at < cols
    place = row * cols + at
    state = tl.load(state_ptr + place, keep, 0.0) * 0.9 + tl.load(x_ptr + place, keep, 0.0)
    tl.store(state_ptr + place, state, keep)
    y = state * tl.load(gate_ptr + place, keep, 0.0)
    tl.store(out_ptr + place, y, keep)
    for copy in range(COPIES):
        tl.store(sum_ptr + row * COPIES + copy, tl.sum(y, 0))


class ModelNew(torch.nn.Module):
    def forward(self, x, state, gate):
        rows, cols = x.shape
        out, sums = torch.empty_like(x), x.new_empty(rows, 4)
        kernel[(rows,)](x, state, gate, out, sums, cols, 4, BLOCK=triton.next_power_of_2(cols))
        return out, sums
