"""The reference timed from shapes alone: as with data where both can be done, in no memory where only one can."""

import resource

import pytest

from corpus_grading import task_named
from drkernel.gym.judge.findings import data_dependent
from drkernel.gym.judge.modelled_timing import reference_profile, reference_profile_at, reference_work
from drkernel.gym.judge.own_sizes import chosen_to_check, with_other_sizes
from drkernel.gym.request import EvalRequest, EvalSettings
from drkernel.sim.spec import get_spec
from drkernel.task import TaskError
from drkernel.tasks.reference import load_reference
from drkernel.tasks.thin import own_source
from drkernel.verdict import Correctness, Sizes
from verdicts import speedup_of, verdict_of

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
    "bags": "return F.embedding_bag(index.view(-1, 4), self.linear.weight)",  # whose Python code names the device
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


@pytest.mark.parametrize("accurate", [False, True])
def test_only_what_sizes_may_explain_is_tried_at_others(accurate):
    """Halves of operands lost in a mean over a million products were right where more were averaged."""
    settings = EvalSettings(profile=None, checked_bytes=2 << 20, own_seconds=60)
    request = EvalRequest(task=task_named("mean_of_products"), candidate="jit", settings=settings)
    message = "output 0 has shape [2]" if accurate else "the output is not as accurate as fp32: rms error 1e-5"
    wrong = Correctness(checked_calls=1, passed_calls=0, message=message)
    changed = {"M": (2048, 16), "N": (2048, 512)}
    first, tried = verdict_of("incorrect", correctness=wrong, checked_at=Sizes(profile=None, changed=changed)), []

    def evaluate(other, again):
        tried.append(other)
        return first

    assert with_other_sizes(first, request, evaluate, 8 << 30).status == "incorrect"
    assert bool(tried) == accurate


@pytest.mark.parametrize("paid", [True, False])
def test_what_depends_on_data_is_timed_with_them_where_own_sizes_are_affordable(paid):
    """Tokens sorted by expert beside a reference that multiplies all: without data nobody knows how much it reads."""
    settings = EvalSettings(profile=None, checked_bytes=2 << 20, own_seconds=60)
    request = EvalRequest(task=task_named("experts_by_logits"), candidate="jit", settings=settings)
    first = verdict_of("correct", findings=(data_dependent("a load"),), untimed="a load decides")
    speedup, tried = speedup_of(2.0), []

    def evaluate(other, again):
        tried.append((chosen_to_check(other).source == own_source(other.task), again))
        return verdict_of("correct", speedup=speedup if paid else None)

    found = with_other_sizes(first, request, evaluate, 8 << 30)
    assert tried == [(True, False)]  # checked at own sizes, and timed there by the calls that were checked
    assert (found.speedup, not found.findings) == ((speedup, True) if paid else (None, False))
