# task: four_cosines
# root: sizes
# expect: credited
# As many programs at any size, which take turns: where there are few blocks, most have none.
@triton.jit
def turns_kernel(x_ptr, out_ptr, size, blocks, rounds, BLOCK: tl.constexpr):
    for block in range(tl.program_id(0), blocks, tl.num_programs(0)):
        at = block * BLOCK + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + at, at < size, 0.0)
        for _ in range(rounds):
            x = tl.cos(x) * 1.5
        tl.store(out_ptr + at, x, at < size)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        out, blocks = torch.empty_like(x), triton.cdiv(x.numel(), 1024)
        turns_kernel[(8192,)](x, out, x.numel(), blocks, 4, BLOCK=1024)
        return out
