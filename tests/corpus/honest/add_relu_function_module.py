# twin of: 54
# base: add_relu_plain
# Mutable module state that is no result: a call counter.
#   def forward(self, x, y):
# +     self.calls += 1

class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = 0
