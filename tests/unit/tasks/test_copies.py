"""Copies of modules that hold functions."""

import torch
from torch import nn

from drkernel.tasks.promote import copied


class Closure(nn.Module):
    """As KernelBench's MiniGPTBlock: a function over a submodule in an attribute."""

    def __init__(self):
        super().__init__()
        self.inner = nn.ModuleDict({"a": nn.Linear(3, 3), "b": nn.Linear(3, 3)})
        inner, scale = self.inner, 2.0
        self.run = lambda x, times=1: times * scale * inner.b(inner.a(x))
        self.plain = torch.relu

    def forward(self, x):
        return self.plain(self.run(x, times=3))


def test_functions_of_a_copy_use_the_copy():
    torch.manual_seed(0)
    model, x = Closure(), torch.randn(2, 3)
    expected = model(x)
    fresh = copied(model)
    assert torch.equal(fresh(x), expected)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    assert torch.equal(fresh(x), expected) and not torch.equal(model(x), expected)
    assert fresh.run is not model.run and fresh.plain is model.plain
    doubled = copied(fresh).double()
    assert doubled.run(x.double()).dtype == torch.float64


def test_the_original_is_left_alone():
    model, x = Closure(), torch.randn(2, 3)
    expected = model(x)
    fresh = copied(model)
    with torch.no_grad():
        for parameter in fresh.parameters():
            parameter.zero_()
    assert torch.equal(model(x), expected) and not torch.equal(fresh(x), expected)
