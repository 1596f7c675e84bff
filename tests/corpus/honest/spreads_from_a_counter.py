# task: row_spreads
# twin of: spreads_from_a_counter_of_every_other
# root: sizes
# expect: credited
# Programs take rows from a counter, which they update oftener than they store, as there are more programs than rows.
@triton.jit
def spread(x_ptr, mean_ptr, variance_ptr, next_ptr, rows, cols, step, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    row = tl.atomic_add(next_ptr, 1) * step
    while row < rows:
        x = tl.load(x_ptr + row.to(tl.int64) * cols + at, at < cols, 0.0)
        mean = tl.sum(x) / cols
        apart = tl.where(at < cols, x - mean, 0.0)
        for same in range(0, step):
            tl.store(mean_ptr + row + same, mean)
            tl.store(variance_ptr + row + same, tl.sum(apart * apart) / (cols - 1))
        row = tl.atomic_add(next_ptr, 1) * step


class ModelNew(torch.nn.Module):
    def forward(self, x):
        (rows, cols), step = x.shape, 1
        mean, variance = x.new_empty(rows), x.new_empty(rows)
        following = torch.zeros(1, dtype=torch.int32, device=x.device)
        spread[(512,)](x, mean, variance, following, rows, cols, step, BLOCK=triton.next_power_of_2(cols))
        return mean, variance
