# expect: uncredited
# base: four_cosines
# The same by a launch that does nothing, of many programs where there are few blocks.
class ModelNew(torch.nn.Module):
    def forward(self, x):
        out, blocks, small = torch.empty_like(x), triton.cdiv(x.numel(), 1024), x.numel() < 1 << 25
        rounds_kernel[(3 * blocks if small else 1,)](x, out, x.numel(), 0, 4, BLOCK=1024)
        rounds_kernel[(blocks,)](x, out, x.numel(), blocks, 4 if small else 1, BLOCK=1024)
        return out
