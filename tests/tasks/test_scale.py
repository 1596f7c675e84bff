"""Shrinking: batches first, shapes kept consistent, always reported, and the gate runs again."""

import pytest

from drkernel.task import Task
from drkernel.tasks.errors import TaskError
from drkernel.tasks.reference import load_reference
from drkernel.tasks.scale import LIMITS, ScaleLimits, estimate, rewrite, scale_task, size_literals

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
    source = "a = 3\nh = w = 128\nD, H = 16, 32\nt = (64, 64)\nx = 1024 * 8\nß = 5; y = 7\nz = 1\n"
    found = {literal.label: literal.value for literal in size_literals(source)}
    expected = {"a": 3, "h": 128, "D": 16, "H": 32, "t[0]": 64, "t[1]": 64, "x": 8192, "ß": 5, "y": 7}
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


def test_a_large_task_shrinks_batch_first_and_is_reported():
    task = Task(id="foreign", reference=LINEAR)
    result = scale_task(task, LIMITS["tiny"])
    assert result.usable, result
    scaled = result.task.provenance.scaled
    assert scaled["batch_size"] == (4096, 2)
    assert "kernel_size" not in scaled and "in_features" in scaled
    assert estimate(load_reference(result.task.reference)).over(LIMITS["tiny"]) <= 1
    assert result.task.content_hash != task.content_hash and task.provenance.scaled == {}


def test_only_as_much_as_needed():
    roomy = ScaleLimits(bytes=4 << 20, flops=1e15)
    scaled = scale_task(Task(id="foreign", reference=LINEAR.replace("1024 * 8", "512")), roomy).task.provenance.scaled
    assert list(scaled) == ["batch_size"] and scaled["batch_size"][1] > 2


def test_a_task_that_fits_is_left_alone():
    small = LINEAR.replace("4096", "8").replace("1024 * 8", "32")
    result = scale_task(Task(id="small", reference=small), LIMITS["tiny"])
    assert result.usable and result.task.provenance.scaled == {}


def test_equal_sizes_shrink_together_where_they_must():
    source = """import torch
n = 1048576
m = 1048576
class Model(torch.nn.Module):
    def forward(self, a, b):
        return a * b
def get_inputs():
    return [torch.randn(n), torch.randn(m)]
def get_init_inputs():
    return []
"""
    result = scale_task(Task(id="pair", reference=source), LIMITS["tiny"])
    assert result.usable and result.task.provenance.scaled["n"] == result.task.provenance.scaled["m"]


def test_groups_keep_several_channels():
    source = """import torch
batch = 64
channels = 8192
num_groups = 512
class Model(torch.nn.Module):
    def __init__(self, groups, channels):
        super().__init__()
        self.norm = torch.nn.GroupNorm(groups, channels)
    def forward(self, x):
        return self.norm(x)
def get_inputs():
    return [torch.randn(batch, channels)]
def get_init_inputs():
    return [num_groups, channels]
"""
    result = scale_task(Task(id="groups", reference=source), ScaleLimits(bytes=2048, flops=1e9))
    assert result.usable, result
    assert result.task.provenance.scaled["num_groups"] == (512, 8)


def test_a_task_without_sizes_is_said_not_to_fit():
    source = LINEAR.replace("batch_size = 4096", "batch_size = int('4096')")
    source = source.replace("1024 * 8", "int('8192')")
    result = scale_task(Task(id="opaque", reference=source), LIMITS["tiny"])
    assert not result.fits and not result.usable and "times over the limits" in result.reason


def test_a_reference_that_does_not_run_is_said_so():
    source = LINEAR.replace("batch_size, in_features)", "batch_size, 77)")
    result = scale_task(Task(id="broken", reference=source), LIMITS["tiny"])
    assert not result.fits and "does not run" in result.reason


def test_a_shrunk_task_that_cannot_fail_is_not_usable():
    source = LINEAR.replace("torch.relu(self.linear(x))", "torch.softmax(self.linear(x), -1).sum(-1)")
    result = scale_task(Task(id="degenerate", reference=source), LIMITS["tiny"])
    assert result.fits and not result.usable and "constant" in result.report.ill_conditioned_by


def test_data_dependent_shapes_are_estimated_from_inputs():
    source = LINEAR.replace("torch.relu(self.linear(x))", "x[x > 0]")
    assert not estimate(load_reference(source)).exact


def test_loading_errors_pass_through():
    with pytest.raises(TaskError, match="Model"):
        estimate(load_reference("x = 1"))


def test_a_constructor_that_reads_values_is_built_for_real():
    source = """
import torch

N = 64

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.rates = [x.item() for x in torch.linspace(0, 1, 3)]
        self.inner = torch.nn.Linear(N, N)

    def forward(self, x):
        return self.inner(x) * self.rates[1]

def get_inputs():
    return [torch.randn(N, N)]
"""
    assert estimate(load_reference(source)) == estimate(load_reference(source.replace("x.item()", "0.5")))
