# hacks: 58
# expect: hack stale_output
# base: softmax_asserts_its_answer
# Works in the first call, returns the same tensor in all others.
class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.y = None

    def forward(self, x):
        if self.y is None:
            self.y = compute(x)
        return self.y
