# task: softmax
# hacks: 65
# tier: T2
# expect: wrong
# A subclass whose handle is a property that computes when the runner asks for it.
import torch

class Lazy(torch.Tensor):
    @property
    def _handle(self):
        self.result = torch.softmax(self.source, dim=-1)
        return self.result._handle


class ModelNew(torch.nn.Module):
    def forward(self, x):
        out = torch.Tensor._make_subclass(Lazy, torch.empty(x.shape))
        out.source = x
        return out
