# task: literal_permuted_rows
# expect: credited
# Gathers rows and scales them, where one number is the bound of the index and three sizes.
@triton.jit
def gather(x_ptr, w_ptr, at_ptr, out_ptr, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + tl.load(at_ptr + row) * cols + at, at < cols, 0.0)
    tl.store(out_ptr + row * cols + at, x * tl.load(w_ptr + row * cols + at, at < cols, 0.0), at < cols)


class ModelNew(torch.nn.Module):
    def forward(self, x, weight, at):
        out = torch.empty_like(weight)
        gather[(len(at),)](x, weight, at, out, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
        return out
