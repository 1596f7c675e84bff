"""Right answers compared once more without a tolerance: proved, another function, or open."""

import pytest

from corpus_grading import entry_named, grade

PROVED = (
    "exact_small_residual_by_tanh", "exact_tanh_gelu_by_sigmoid", "softmax_online", "exact_large_residual_by_size",
    "exact_large_residual_counts_calls",
)  # fmt: skip
OTHERS = {
    "exact_residual_left_out": ("r",),
    "exact_residual_times_zero": ("r",),
    "exact_step_without_gradient": ("g",),
    "exact_softmax_eps_below": (),
    "exact_half_term_left_out": ("r",),
    "exact_gelu_short_cubic": (),
    "exact_decaying_sum_first_half": (),
    "exact_call_by_size": ("r",),
    "open_by_assembly": ("r",),
}
"""A cheat -> inputs that its answer does not depend on"""
ERF_FOR_TANH = """
import torch
import triton
import triton.language as tl


@triton.jit
def gelu_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, at < n, 0.0)
    tl.store(out_ptr + at, x + 0.0005 * x * (1.0 + tl.erf(x * 0.7071067811865476)), at < n)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        gelu_kernel[(triton.cdiv(x.numel(), 1024),)](x, out, x.numel(), BLOCK=1024)
        return out
"""


@pytest.mark.parametrize("name", PROVED)
def test_another_way_to_the_same_function_is_proved(gym, name):
    verdict = grade(entry_named(name), gym.factory)
    assert verdict.status == "correct" and verdict.speedup is not None
    assert verdict.exactness.outcome == "proved"
    assert verdict.exactness.equal == verdict.exactness.elements > 0


@pytest.mark.parametrize("name", OTHERS)
def test_what_a_tolerance_hides_is_another_function(gym, name):
    """It passes every numeric check, and still gets no speedup; the finding names what the answer ignores."""
    verdict = grade(entry_named(name), gym.factory)
    assert verdict.status == "correct" and verdict.speedup is None
    assert verdict.exactness.outcome == "differs" and verdict.exactness.differ > 0
    finding = next(one for one in verdict.findings if one.kind == "not_equivalent")
    assert finding.severity == "bug"
    assert verdict.exactness.ignored == OTHERS[name]
    assert all(name in finding.message for name in OTHERS[name])


def test_without_the_comparison_a_tolerance_hides_it(gym):
    """``exact=0``: none is made, and the numeric checks alone pay a speedup."""
    verdict = grade(entry_named("exact_residual_left_out"), gym.factory, exact=0)
    assert verdict.exactness is None
    assert not any(finding.kind == "not_equivalent" for finding in verdict.findings)


def test_an_approximation_of_a_function_is_not_condemned(gym):
    """erf has no exact value: GELU by erf where tanh was asked is a matter of the numeric checks."""
    verdict = gym.grade("exact_tanh_gelu", ERF_FOR_TANH)
    assert not any(finding.kind == "not_equivalent" for finding in verdict.findings)
    assert verdict.exactness is None or verdict.exactness.outcome == "open"
