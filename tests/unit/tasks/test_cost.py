"""What a call of a reference costs, from meta tensors; and where the sizes stand in its text."""

import pytest

from corpus_sources import module
from drkernel.task import TaskError
from drkernel.tasks.axes import rewrite, size_literals
from drkernel.tasks.cost import estimate
from drkernel.tasks.reference import load_reference

LINEAR = """import torch
import torch.nn as nn
batch_size = 4096
in_features = 1024 * 8  # wide
out_features = 1024 * 8
kernel_size = 3
shape = (out_features, 7)

class Model(nn.Module):
    def __init__(self, i, o):
        super().__init__()
        self.linear = nn.Linear(i, o)
    def forward(self, x):
        return torch.relu(self.linear(x))

def get_inputs():
    return [torch.randn(batch_size, in_features)]
def get_init_inputs():
    return [in_features, out_features]
"""


def test_literals_are_found_and_rewritten_in_place():
    source = (
        "a = 3\nh = w = 128\nD, H = 16, 32\nt = (64, 64)\nx = 1024 * 8\ns = 1 << 20\np = 2 ** 9\nß = 5; y = 7\nz = 1\n"
    )
    found = {literal.label: literal.value for literal in size_literals(source)}
    expected = {
        "a": 3,
        "h": 128,
        "D": 16,
        "H": 32,
        "t[0]": 64,
        "t[1]": 64,
        "x": 8192,
        "s": 1 << 20,
        "p": 512,
        "ß": 5,
        "y": 7,
    }
    assert found == expected
    smaller = rewrite(source, size_literals(source), {label: value * 10 for label, value in expected.items()})
    namespace = {}
    exec(smaller, namespace)
    assert (namespace["w"], namespace["H"], namespace["t"], namespace["ß"], namespace["y"]) == (
        1280,
        320,
        (640, 640),
        50,
        70,
    )
    assert namespace["x"] == 81920 and namespace["z"] == 1
    assert len(smaller.splitlines()) == len(source.splitlines())


def test_cost_is_known_without_allocating():
    cost = estimate(load_reference(LINEAR))
    rows, features = 4096, 8192
    inputs, weights = rows * features, features * features + features
    assert cost.exact and cost.flops == 2 * rows * features * features
    assert cost.bytes == 4 * (inputs + weights + 2 * rows * features)  # the linear layer's and ReLU's outputs


def test_data_dependent_shapes_are_estimated_from_inputs():
    source = LINEAR.replace("torch.relu(self.linear(x))", "x[x > 0]")
    assert not estimate(load_reference(source)).exact


def test_loading_errors_pass_through():
    with pytest.raises(TaskError, match="Model"):
        estimate(load_reference("x = 1"))


def test_a_constructor_that_reads_values_is_built_for_real():
    source = module(
        "self.inner(x) * self.rates[1]",
        {"x": "torch.randn(N, N)"},
        constants=["N = 64"],
        layers={"rates": "[x.item() for x in torch.linspace(0, 1, 3)]", "inner": "torch.nn.Linear(N, N)"},
    )
    assert estimate(load_reference(source)) == estimate(load_reference(source.replace("x.item()", "0.5")))
