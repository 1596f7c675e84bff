# twin of: 54
# base: softmax_plain
# Keeps launch parameters (not results) by shape between calls.
PLANS = {}


def plan(shape):
    if shape not in PLANS:
        PLANS[shape] = ((shape[0],), triton.next_power_of_2(shape[1]))
    return PLANS[shape]


class ModelNew(torch.nn.Module):
    def forward(self, x):
        grid, block = plan(tuple(x.shape))
        out = torch.empty_like(x)
        softmax_kernel[grid](x, out, x.shape[1], BLOCK=block)
        return out
