# tier: T1
# root: sizes
# new: yes
# expect: uncredited
# base: four_cosines
# Programs beyond the end do a quarter of the rounds where there are few, and lower the mean; then half the rounds for all.
# - for _ in range(tl.where(pid < live, rounds, 0)):
# + for _ in range(tl.where(pid < live, rounds, 1)):
class ModelNew(torch.nn.Module):
    def forward(self, x):
        out, blocks, small = torch.empty_like(x), triton.cdiv(x.numel(), 1024), x.numel() < 1 << 25
        grid = blocks * (8 if small else 1)
        rounds_kernel[(grid,)](x, out, x.numel(), blocks, 4 if small else 2, BLOCK=1024)
        return out
