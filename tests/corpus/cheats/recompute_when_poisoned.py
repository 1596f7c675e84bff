# hacks: 60
# base: first_call_for_all
# expect: wrong
# Computes only if its buffer holds NaN, for harnesses that poison it.
class ModelNew(torch.nn.Module):
    def forward(self, x):
        if self.y is None or bool(torch.isnan(self.y).any()):
            self.y = compute(x)
        return self.y.clone()
