# task: four_cosines
# root: sizes
# expect: credited
# All rounds of an element in one kernel; programs beyond the end do nothing.
@triton.jit
def rounds_kernel(x_ptr, out_ptr, size, live, rounds, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    at = pid * BLOCK + tl.arange(0, BLOCK)
    ok = (at < size) & (pid < live)
    x = tl.load(x_ptr + at, ok, 0.0)
    for _ in range(tl.where(pid < live, rounds, 0)):
        x = tl.cos(x) * 1.5
    tl.store(out_ptr + at, x, ok)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        out, blocks = torch.empty_like(x), triton.cdiv(x.numel(), 1024)
        rounds_kernel[(triton.next_power_of_2(blocks + 1),)](x, out, x.numel(), blocks, 4, BLOCK=1024)
        return out
