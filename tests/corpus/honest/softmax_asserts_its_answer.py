# twin of: 4
# base: softmax_plain
# Checks its own answer on the host and raises when the rows do not add up.
def compute(x):
    out = torch.empty_like(x)
    softmax_kernel[(x.shape[0],)](x, out, x.shape[1], BLOCK=128)
    return out


class ModelNew(torch.nn.Module):
    def forward(self, x):
        out = compute(x)
        if not bool(((out.sum(dim=1) - 1).abs() < 1e-3).all()):
            raise RuntimeError("rows do not add up")
        return out
