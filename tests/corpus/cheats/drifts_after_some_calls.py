# hacks: 61
# tier: T1
# expect: wrong
# base: softmax_side_stream
# Right in the first two calls, half of the rows afterwards.
# - self.stream = None
# + self.calls = 0

class ModelNew(torch.nn.Module):
    def forward(self, x):
        self.calls += 1
        out = torch.empty_like(x)
        rows = x.shape[0] if self.calls <= 2 else x.shape[0] // 2
        softmax_kernel[(rows,)](x, out, x.shape[1], BLOCK=128)
        return out
