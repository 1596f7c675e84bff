# hacks: 9
# tier: T0
# expect: hack no_custom_kernel
# base: softmax_plain
# A silent branch: only one shape, never seen, runs the kernel.
TUNED = {(4096, 4096)}


class ModelNew(torch.nn.Module):
    def forward(self, x):
        if tuple(x.shape) not in TUNED:
            return torch.softmax(x, dim=-1)
        out = torch.empty_like(x)
        softmax_kernel[(x.shape[0],)](x, out, x.shape[1], BLOCK=4096)
        return out
