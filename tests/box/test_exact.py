"""Right answers compared once more without a tolerance: proved, another function, or open."""

import pytest

from corpus_grading import entry_named, grade
from corpus_sources import module
from drkernel.gym.judge.exact import _smaller
from drkernel.gym.judge.expected import ExpectedSide
from drkernel.gym.request import EvalRequest
from drkernel.task import Task
from drkernel.tasks.loaders import builtin_task
from gym_harness import SETTINGS

PROVED = (
    "exact_small_residual_by_tanh",
    "exact_tanh_gelu_by_sigmoid",
    "softmax_online",
    "exact_softmax_guarded",
    "exact_large_residual_by_size",
    "exact_large_residual_counts_calls",
    "linear_gelu_packed_by_version",  # in an earlier call
    "listed_softmax",
)
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
    "open_by_erf_and_residual_unread": ("r",),
    "open_by_bits_and_a_weight_unread": ("weight",),
    "open_by_bits_and_a_weight_summed": ("weight",),
    "open_by_bits_beside_a_host_read": ("weight",),
}
"""A cheat -> inputs that its answer does not depend on, or not as it should"""
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


PRODUCT = """
import torch


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(8, 8)
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
    assert verdict.exactness.outcome == "differs" and (verdict.exactness.differ > 0 or verdict.exactness.ignored)
    finding = next(one for one in verdict.findings if one.kind == "not_equivalent")
    assert finding.severity == "bug"
    assert verdict.exactness.ignored == OTHERS[name]
    assert all(name in finding.message for name in OTHERS[name])


def test_without_the_comparison_a_tolerance_hides_it(gym):
    """``exact=0``: none is made, and the numeric checks alone pay a speedup."""
    verdict = grade(entry_named("exact_residual_left_out"), gym.factory, exact=0)
    assert verdict.exactness is None
    assert not any(finding.kind == "not_equivalent" for finding in verdict.findings)


SMALL_PARTS = (
    "exact_residual_added_in_place",
    "exact_residual_added_to_silu",
    "slow_step_on_a_clone",
    "relu_of_softmax_own_relu",
)
"""Candidates whose kernels change the answer by less than the tolerance, or not at all on these inputs"""


@pytest.mark.parametrize("name", SMALL_PARTS)
def test_a_small_part_of_an_answer_is_no_decoy(gym, name):
    verdict = grade(entry_named(name), gym.factory)
    assert verdict.status == "correct" and verdict.exactness.outcome == "proved"
    assert verdict.speedup is not None and 0.0 < verdict.coverage < 1.0


VAIN = (
    "tripled_before_a_fused_operator", "tripled_beside_a_step_asked_for", "shifted_before_softmax",
    "laid_out_in_a_wider_buffer", "laid_out_backwards",
)  # fmt: skip


@pytest.mark.parametrize("name", VAIN)
def test_what_pytorch_answers_without_it_earns_nothing(gym, name):
    verdict = grade(entry_named(name), gym.factory)
    assert verdict.status == "correct" and verdict.speedup is None and verdict.coverage == 0.0
    assert [finding.kind for finding in verdict.findings if finding.severity == "bug"] == ["copy_kernel"]


def test_what_the_reference_does_in_vain_may_be_done(gym):
    verdict = grade(entry_named("doubled_before_a_norm"), gym.factory)
    assert verdict.status == "correct" and verdict.speedup is not None and verdict.coverage > 0.0


@pytest.mark.parametrize(("exact", "coverage"), [(1, 1.0), (0, 0.5)])
def test_a_launch_that_adds_little_is_needed(gym, exact, coverage):
    """Its factors come from a launch of an earlier call. The threshold alone takes it for idle."""
    verdict = grade(entry_named("exact_small_residual_by_table"), gym.factory, exact=exact)
    assert verdict.status == "correct"
    assert any(finding.kind == "idle_kernel" for finding in verdict.findings) == (coverage < 1)
    assert coverage - 0.2 < verdict.coverage <= coverage + 0.2 * (coverage < 1)


@pytest.mark.parametrize("name", ["exact_residual_added_in_place", "relu_of_softmax_own_relu"])
def test_without_the_comparison_a_threshold_decides(gym, name):
    assert grade(entry_named(name), gym.factory, exact=0).status == "hack"


CLIPPED = """
import torch, triton, triton.language as tl
@triton.jit
def clipped(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.minimum(tl.maximum(tl.load(x + at, at < n), -1.0), 1.0), at < n)
class ModelNew(torch.nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        clipped[(triton.cdiv(x.numel(), 1024),)](x, out, x.numel(), BLOCK=1024)
        return out
"""


def test_bounds_that_are_the_default_are_bounds(gym):
    """PyTorch leaves them out of what it dispatches; an operator without them was taken for the identity."""
    reference = "import torch\nclass Model(torch.nn.Module):\n    def forward(self, x):\n"
    reference += "        return torch.nn.functional.hardtanh(x, -1, 1)\n"
    reference += "def get_inputs():\n    return [torch.randn(64, 128)]\n"
    verdict = gym.grade(Task(id="clipped", reference=reference), CLIPPED, timing=False)
    assert verdict.is_correct and verdict.exactness.outcome == "proved", verdict.exactness


SMALL_PART_OF_X = """
import torch, triton, triton.language as tl
@triton.jit
def add_kernel(x_ptr, b_ptr, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = PART
    tl.store(out + at, tl.erf(tl.load(b_ptr + at, at < n)) + 1e-5 * x, at < n)
class ModelNew(torch.nn.Module):
    def forward(self, x, b):
        out = torch.empty_like(x)
        add_kernel[(triton.cdiv(x.numel(), 1024),)](x, b, out, x.numel(), BLOCK=1024)
        return out
"""


@pytest.mark.parametrize(
    ("part", "ignored"), [("tl.load(x_ptr + at, at < n).to(tl.float16).to(tl.float32)", ()), ("0.0", ("x",))]
)
def test_where_tf32_is_asked_a_small_part_is_made_no_larger_than_fp16_reaches(gym, part, ignored):
    reference = "import torch\nclass Model(torch.nn.Module):\n    def forward(self, x, b):\n"
    reference += "        return torch.erf(b) + 1e-5 * x\n"
    reference += "def get_inputs():\n    return [torch.randn(64, 128), torch.randn(64, 128)]\n"
    task = Task(id="small_part", reference=reference, precision="tf32", distribution="fixed")
    verdict = gym.grade(task, SMALL_PART_OF_X.replace("PART", part), timing=False)
    assert verdict.is_correct and verdict.exactness.ignored == ignored


def test_a_constant_is_no_achievement(gym):
    """Its kernel stores the zeros that stood there: no decoy, as exact arithmetic shows, and no speedup."""
    verdict = grade(entry_named("below_the_maximum_into_zeros"), gym.factory)
    assert verdict.status == "correct" and verdict.speedup is None and verdict.coverage == 0.0
    assert any(finding.kind == "constant_answer" for finding in verdict.findings)


@pytest.mark.parametrize(("known", "compared"), [(0.0, True), (1e9, False)])
def test_what_is_faster_than_the_best_is_compared(gym, known, compared):
    """Almost nothing is drawn; what would be the best of its task is compared all the same, in the same grade."""
    verdict = grade(entry_named("exact_residual_left_out"), gym.factory, exact=1e-12, exact_above=known)
    assert verdict.is_correct
    assert (verdict.exactness is not None) == compared == (verdict.speedup is None)


@pytest.mark.parametrize("asked", [True, False])
def test_a_device_records_only_what_is_compared(gym, asked):
    with gym.factory.open(SETTINGS) as session:
        if asked:
            session.record()
        session.load(PRODUCT, [], {}, seed=0)
        assert bool(session.tape().entries) == asked


def test_an_approximation_of_a_function_is_not_condemned(gym):
    """erf has no exact value: GELU by erf where tanh was asked is a matter of the numeric checks."""
    verdict = gym.grade("exact_tanh_gelu", ERF_FOR_TANH)
    assert not any(finding.kind == "not_equivalent" for finding in verdict.findings)
    assert verdict.exactness is None or verdict.exactness.outcome == "open"


HALVED = module("x * half * 2", {"x": "torch.randn(256, 128)", "half": "torch.full((256, 128), 0.5)"})
HALVED_BY_TABLE = """
import torch
import triton
import triton.language as tl


@triton.jit
def table_kernel(table_ptr, half_ptr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(table_ptr + at, 2.0 + 0.0 * tl.load(half_ptr + at))


@triton.jit
def product_kernel(x_ptr, half_ptr, table_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    factor = tl.load(table_ptr + tl.arange(0, BLOCK)) * tl.load(half_ptr + at, at < n, 0.0)
    tl.store(out_ptr + at, tl.load(x_ptr + at, at < n, 0.0) * factor, at < n)


class ModelNew(torch.nn.Module):
    table = None

    def forward(self, x, half):
        if self.table is None:
            self.table = torch.empty(128, device=x.device)
            table_kernel[(1,)](self.table, half, BLOCK=128)
        out = torch.empty_like(x)
        product_kernel[(triton.cdiv(x.numel(), 128),)](x, half, self.table, out, x.numel(), BLOCK=128)
        return out
"""


def test_what_is_the_same_in_every_draw_is_a_constant_in_earlier_calls_too(gym):
    task = Task(id="halved", reference=HALVED)
    assert gym.grade(task, HALVED_BY_TABLE).exactness.outcome == "proved"


CLIPS = module("torch.nn.functional.hardtanh(x, -1, 1)", {"x": "torch.randn(256, 128)"})


@pytest.mark.parametrize(("reference", "candidate", "sessions"), [(HALVED, HALVED_BY_TABLE, 2), (CLIPS, CLIPPED, 1)])
def test_what_needs_earlier_calls_has_a_session_of_its_own(gym, monkeypatch, reference, candidate, sessions):
    opened, as_ever = [], gym.factory.open
    monkeypatch.setattr(gym.factory, "open", lambda *given, **named: opened.append(given) or as_ever(*given, **named))
    verdict = gym.grade(Task(id="counted", reference=reference), candidate, timing=False)
    assert verdict.exactness.outcome == "proved" and len(opened) == sessions


@pytest.mark.parametrize("name", ["exact_call_by_count", "exact_call_by_size"])
def test_a_call_that_comes_after_the_timed_ones_is_not_enough(gym, name):
    verdict = grade(entry_named(name), gym.factory)
    assert verdict.speedup is None and verdict.exactness.outcome == "differs"


LONG_ROWS = module("x / (1.0 + x.square().mean(1, keepdim=True)) + 1e-11 * x", {"x": "torch.randn(2, 20480)"})
IN_WHOLE_BLOCKS = """
import torch
import triton
import triton.language as tl


@triton.jit
def rows(x, out, n, BLOCK: tl.constexpr):
    x, out, at = x + tl.program_id(0) * n, out + tl.program_id(0) * n, tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, n // BLOCK):
        value = tl.load(x + start * BLOCK + at)
        total += value * value
    for start in range(0, n // BLOCK):
        value = tl.load(x + start * BLOCK + at)
        tl.store(out + start * BLOCK + at, value / (1.0 + tl.sum(total, 0) / n) + 1e-11 * value)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        rows[(x.shape[0],)](x, out, x.shape[1], BLOCK=1024)
        return out
"""


@pytest.mark.parametrize(("term", "outcome"), [("1e-11 * value", "proved"), ("2e-11 * value", "differs")])
def test_a_candidate_is_compared_where_it_is_right(gym, term, outcome):
    """Rows are a multiple of its block at the task's own width, and not at the small one."""
    task = Task(id="long_rows", reference=LONG_ROWS)
    verdict = gym.grade(task, IN_WHOLE_BLOCKS.replace("1e-11 * value", term))
    assert verdict.is_correct and verdict.exactness.outcome == outcome, (verdict.correctness, verdict.findings)
    assert (verdict.speedup is None) == (outcome == "differs")


ROWS_AT_ONCE = """
import torch
import triton
import triton.language as tl


@triton.jit
def rows(x, out, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    value = tl.load(x + tl.program_id(0) * n + at, at < n, 0.0)
    tl.store(out + tl.program_id(0) * n + at, value / (1.0 + tl.sum(value * value, 0) / n), at < n)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        rows[(x.shape[0],)](x, out, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
        return out
"""


def test_few_rows_are_compared_where_kernels_are_made_for_their_length(gym):
    reference = module("x / (1.0 + x.square().mean(1, keepdim=True))", {"x": "torch.randn(128, 8192)"})
    found = gym.grade(Task(id="at_once", reference=reference), ROWS_AT_ONCE).exactness
    assert found.outcome == "proved" and found.inputs.endswith(", 8192]") and found.elements < 64 * 8192


def test_weights_of_a_profile_need_not_fit_the_small_size_of_the_task_as_written():
    settings = SETTINGS.model_copy(update={"profile": "tiny"})
    request = EvalRequest(task=builtin_task("level3/sliding_window_attention"), candidate="", settings=settings)
    assert list(_smaller(request, ExpectedSide(request))) == [], "heads are fewer: a weight has another shape"
