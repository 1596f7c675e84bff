"""The reference timed from shapes alone: as with data where both can be done, in no memory where only one can."""

import resource

import pytest

from drkernel.gym.judge.modelled_timing import reference_profile, reference_profile_at, reference_work
from drkernel.sim.spec import get_spec
from drkernel.task import TaskError
from drkernel.tasks.reference import load_reference

SPEC = get_spec("h200")
TEMPLATE = """
import torch
import torch.nn as nn
import torch.nn.functional as F

N = {n}

class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.linear = nn.Linear(width, width)
        self.norm = nn.BatchNorm1d(width)

    def forward(self, x, index):
        {body}

def get_inputs():
    return [torch.rand(N, 256), torch.randint(0, 256, (N,))]

def get_init_inputs():
    return [256]
"""
BODIES = {
    "linear": "return torch.softmax(self.norm(self.linear(x)), -1)",
    "gather": "return x[torch.arange(x.shape[0], device=x.device), index] + F.cross_entropy(x, index)",
    "shapes": "return F.adaptive_avg_pool1d(x.unsqueeze(-1).transpose(1, 2), 1).transpose_(0, 1)",
}


@pytest.mark.parametrize("body", BODIES)
def test_time_from_shapes_is_that_with_data(body: str) -> None:
    reference = load_reference(TEMPLATE.format(n=512, body=BODIES[body]))
    with_data = reference_profile(f"with {body}", SPEC, reference.build(0), reference.draw_inputs(0))
    without = reference_profile_at(SPEC, reference, conv_tf32=False)
    assert without.elapsed_seconds == pytest.approx(with_data.elapsed_seconds, rel=1e-3)
    assert [row.name for row in without.rows] == [row.name for row in with_data.rows]


def test_what_nobody_could_hold_takes_no_memory() -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    reference = load_reference(TEMPLATE.format(n=1 << 25, body=BODIES["linear"]))  # 34 GB of input
    profile = reference_profile_at(SPEC, reference, conv_tf32=False)
    assert profile.elapsed_seconds > 0.05
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 300 << 10


def test_work_grows_with_the_size() -> None:
    small, large = (
        reference_work(load_reference(TEMPLATE.format(n=n, body="return torch.relu(self.linear(x))")))
        for n in (64, 1024)
    )
    assert large.flops == pytest.approx(16 * small.flops, rel=0.01)
    assert small.input_bytes == 64 * 256 * 4 + 64 * 8
    assert small.output_bytes == 64 * 256 * 4
    assert small.weight_bytes == 4 * (256 * 256 + 256) + 4 * 4 * 256 + 8  # linear, norm and its statistics
    assert large.products == 16 * small.products == 16 * 2 * 64 * 256 * 256


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("return x * 2 if x.sum() > 0 else x", "host reads"),
        ("return x[x > 0.5]", "depends on data"),
    ],
)
def test_what_depends_on_data_is_named(body: str, says: str) -> None:
    reference = load_reference(TEMPLATE.format(n=1 << 16, body=body))
    with pytest.raises(TaskError, match=says):
        reference_profile_at(SPEC, reference, conv_tf32=False)
