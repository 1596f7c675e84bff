# expect: uncredited
# base: four_cosines
# Three in four programs idle where there are few, so that a program's rounds are one on average; then one for all.
class ModelNew(torch.nn.Module):
    def forward(self, x):
        out, blocks, small = torch.empty_like(x), triton.cdiv(x.numel(), 1024), x.numel() < 1 << 25
        grid = blocks * (4 if small else 1)
        rounds_kernel[(grid,)](x, out, x.numel(), blocks, 4 if small else 1, BLOCK=1024)
        return out
