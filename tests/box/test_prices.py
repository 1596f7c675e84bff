"""Verdicts where something has no price, and convolutions at the precision that the task declares."""

import pytest

from corpus_grading import entry_named, task_named
from corpus_sources import module
from drkernel.gym.feedback import feedback
from drkernel.gym.reward import RewardConfig, reward
from drkernel.task import Task
from drkernel.verdict import Verdict

SOFTMAX = entry_named("softmax_plain").source
ONE = "torch.linalg.matrix_exp(torch.zeros(1, 1, device=x.device))[0, 0]"
"""what is 1 and has no price"""
CONVOLUTION = module(
    "torch.relu(self.conv(x))",
    {"x": "torch.randn(2, 128, 16, 16)"},
    layers={"conv": "torch.nn.Conv2d(128, 128, 3, padding=1)"},
)
OWN_RELU = """
import torch
import triton
import triton.language as tl

@triton.jit
def relu_kernel(x_ptr, out_ptr, size, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + at, tl.maximum(tl.load(x_ptr + at, at < size), 0.0), at < size)

class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(128, 128, 3, padding=1)

    def forward(self, x):
        y = self.conv(x).contiguous()
        out = torch.empty_like(y)
        relu_kernel[(triton.cdiv(y.numel(), 1024),)](y, out, y.numel(), BLOCK=1024)
        return out
"""


def assert_uncredited(verdict: Verdict, *, of_the_task: bool) -> None:
    """Right, and no speedup in verdict, reward or feedback."""
    assert verdict.status == "correct" and verdict.speedup is verdict.coverage is verdict.timing is None
    (finding,) = [one for one in verdict.findings if one.kind == "unpriced_operator"]
    assert finding.severity == "note" and finding.evidence["of_the_task"] is of_the_task
    assert finding.evidence["operators"] == ["aten.linalg_matrix_exp"]
    earned = reward(verdict, RewardConfig())
    assert (earned.total, earned.speedup, earned.coverage) == (0.5, 0.0, 0.0)
    assert "aten.linalg_matrix_exp" in feedback(verdict)
    assert "no speedup: unpriced operator" in feedback(verdict, style="compact")
    assert Verdict.model_validate_json(verdict.model_dump_json()) == verdict


def test_an_operator_without_a_price_earns_no_speedup(gym):
    verdict = gym.grade("softmax", SOFTMAX.replace("return out", f"return out * {ONE}"))
    assert_uncredited(verdict, of_the_task=False)
    rows = {row.name: row.unpriced for row in verdict.profile.rows}
    assert rows["aten.linalg_matrix_exp"] == "how much it does depends on the values" and rows["softmax_kernel"] is None


def test_a_reference_without_a_price_gives_no_candidate_a_speedup(gym):
    task = task_named("softmax")
    reference = task.reference.replace("torch.softmax(x, dim=-1)", f"torch.softmax(x, dim=-1) * {ONE}")
    assert reference != task.reference
    assert_uncredited(gym.grade(task.model_copy(update={"reference": reference}), SOFTMAX), of_the_task=True)


def test_convolutions_have_the_declared_precision_on_both_sides(gym):
    seconds = {}
    for precision in ("fp32", "tf32"):
        task = Task(id="file/convolution", reference=CONVOLUTION, precision=precision)
        verdict = gym.grade(task, OWN_RELU)
        assert verdict.status == "correct", verdict.correctness or verdict.error
        mine, theirs = (
            next(row.seconds for row in profile.rows if row.name == "aten.convolution")
            for profile in (verdict.profile, verdict.reference_profile)
        )
        assert mine == pytest.approx(theirs, rel=0.05)
        seconds[precision] = theirs
    assert seconds["fp32"] > 1.3 * seconds["tf32"]
