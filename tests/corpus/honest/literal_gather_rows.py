# task: literal_gather
# expect: credited
# Gathers rows by an index that is bounded by a number in get_inputs.
@triton.jit
def gather(x_ptr, at_ptr, out_ptr, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    source = tl.load(at_ptr + row)
    tl.store(out_ptr + row * cols + at, 2.0 * tl.load(x_ptr + source * cols + at, at < cols, 0.0), at < cols)


class ModelNew(torch.nn.Module):
    def forward(self, x, at):
        out = torch.empty(len(at), x.shape[1], device=x.device)
        gather[(len(at),)](x, at, out, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
        return out
