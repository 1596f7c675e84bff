"""Times at a task's own sizes: what a verdict names, what cannot be timed, and what a kernel's text is compared by."""

import pytest

from corpus_grading import entry_named, task_named
from corpus_sources import module
from drkernel.sim.gpu.pricing import essence
from drkernel.task import Task
from drkernel.tasks.loaders import builtin_task

TERMS = {"checked_bytes": 2 << 20, "other_calls": False, "knock_out": False, "checks": 1}
HONEST = entry_named("sizes_whole_row").source
GATHER = module("x[x[:, 0] > -100.0] * 2.0", {"x": "torch.randn(ROWS, 64)"}, constants=["ROWS = 1 << 16"])
GATHERING = """
import torch, triton, triton.language as tl
@triton.jit
def double(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, at < n) * 2.0, at < n)
class ModelNew(torch.nn.Module):
    def forward(self, x):
        x = x[x[:, 0] > -100.0]
        out = torch.empty_like(x)
        double[(triton.cdiv(x.numel(), 256),)](x, out, x.numel(), BLOCK=256)
        return out
"""
WIDE = module(
    "torch.relu(self.linear(x))",
    {"x": "torch.randn(64, WIDTH)"},
    constants=["WIDTH = 32768"],
    init={"width": "WIDTH"},
    layers={"linear": "torch.nn.Linear(width, width)"},
)
WIDE_NEW = """
import torch, triton, triton.language as tl
@triton.jit
def relu(x, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + at, tl.maximum(tl.load(x + at, at < n), 0.0), at < n)
class ModelNew(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.linear = torch.nn.Linear(width, width)
    def forward(self, x):
        y = self.linear(x)
        relu[(triton.cdiv(y.numel(), 256),)](y, y.numel(), BLOCK=256)
        return y
"""


def grade(gym, task: Task, candidate: str, **settings):
    return gym.grade(task, candidate, **{**TERMS, **settings})


def test_a_verdict_names_both_sizes(gym):
    verdict = grade(gym, task_named("tall_norm"), HONEST)
    assert verdict.status == "correct" and verdict.speedup is not None, verdict.findings
    assert verdict.timed_at.inputs == ("x float32[16384, 1024]",) and not verdict.timed_at.changed
    (own, used) = verdict.checked_at.changed["ROWS"]
    assert own == 16384 and verdict.checked_at.inputs == (f"x float32[{used}, 1024]",)
    at_checked = grade(gym, task_named("tall_norm"), HONEST, time_at="checked")
    assert at_checked.timed_at == at_checked.checked_at == verdict.checked_at
    assert at_checked.timing.seconds < verdict.timing.seconds / 3


def test_what_depends_on_data_is_timed_where_it_was_checked_and_says_so(gym):
    verdict = grade(gym, Task(id="gather", reference=GATHER), GATHERING)
    assert verdict.status == "correct", verdict.error
    assert verdict.untimed is not None and "depends on data" in verdict.untimed
    assert verdict.timed_at == verdict.checked_at and verdict.timed_at.changed


def test_weights_that_nobody_could_hold_take_no_memory(gym):
    """The linear layer has 4 GB; the runner may take one."""
    verdict = grade(gym, Task(id="wide", reference=WIDE), WIDE_NEW)
    assert verdict.status == "correct" and verdict.speedup is not None, (verdict.findings, verdict.untimed)
    assert verdict.timed_at.inputs == ("x float32[64, 32768]",)
    assert verdict.timing.seconds > 4 * 32768**2 / 4.8e12, "what reading the weights takes at best"


TTIR = """
module {
  tt.func public @k(%x: !tt.ptr<f32> {tt.divisibility = 16 : i32}, %n: i32) attributes {noinline = false} {
    %c = arith.constant 4096 : i32
    %0 = tt.make_range {end = 128 : i32, start = 0 : i32} : tensor<128xi32> loc("a.py":1:2)
    %1 = tt.load %x_0, %m : tensor<128x!tt.ptr<f32>> loc(callsite(#loc1 at #loc2))
    %2 = math.exp %1 : tensor<128xf32>
    tt.store %3, %2, %m : tensor<128x!tt.ptr<f32>>
    tt.return
  }
}
"""


@pytest.mark.parametrize(
    "old, new", [("4096", "16"), (" {tt.divisibility = 16 : i32}", ""), ("i32", "i64"), ("%1", "%v")]
)
def test_a_kernel_is_the_same_for_other_sizes(old, new):
    assert essence(TTIR.replace(old, new)) == essence(TTIR)


@pytest.mark.parametrize(
    "old, new",
    [("128", "64"), ("math.exp", "math.exp2"), ("<f32>", "<f16>"), ("    %2 = math.exp %1 : tensor<128xf32>\n", "")],
)
def test_and_another_where_it_does_something_else(old, new):
    assert essence(TTIR.replace(old, new)) != essence(TTIR)


FIXED_INSIDE = module("self.linear(x)", {"x": "torch.randn(64, 256)"}, layers={"linear": "torch.nn.Linear(256, 256)"})


def test_what_is_far_beyond_the_limits_is_refused_with_figures(gym):
    task = Task(id="fixed", reference=FIXED_INSIDE)
    verdict = grade(gym, task, "class ModelNew: pass", checked_flops=1e3)
    assert (verdict.status, verdict.error.type) == ("invalid_request", "TaskTooLarge")
    assert "0.000262 GFLOP" in verdict.error.message and "raise 'checked_flops'" in verdict.error.message
    assert grade(gym, task, "class ModelNew: pass", checked_flops=1e4).status != "invalid_request"


SQUARE = module("torch.triu(x) * 2", {"x": "torch.randn(N, N)"}, constants=["N = 1024"])
SQUARE_NEW = """
import torch, triton, triton.language as tl
@triton.jit
def rows(x, out, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    for start in range(0, n, BLOCK):
        at = start + tl.arange(0, BLOCK)
        kept = tl.where(at >= row, tl.load(x + row * n + at, at < n, 0.0), 0.0)
        tl.store(out + row * n + at, kept * 2.0, at < n)
class ModelNew(torch.nn.Module):
    def forward(self, x):
        n, out = x.shape[0], torch.empty_like(x)
        rows[(n,)](x, out, n, BLOCK=256)
        return out
"""


@pytest.mark.parametrize("first", ["cols", "min(cols, 128)"])
def test_a_pass_that_ran_once_where_it_was_checked_has_to_run_as_often_as_needed(gym, first):
    """The maximum of a row's first block alone is right until inputs are large, and saves a pass over long rows."""
    source = entry_named("softmax_three_passes").source
    kernel, module = source.split("class ModelNew")
    once = kernel.replace("range(0, cols, BLOCK)", "range(0, first, BLOCK)", 1).replace(
        "cols, spare,", "cols, first, spare,"
    )
    told = module.replace("cols, 0, BLOCK=4096, num_warps=8", f"cols, {first}, 0, BLOCK=128")
    verdict = gym.grade(
        builtin_task("level1/softmax"), f"{once}class ModelNew{told}", profile="tiny", other_calls=False
    )
    kinds = [finding.kind for finding in verdict.findings]
    assert verdict.is_correct and ("size_dependent" in kinds) == (verdict.speedup is None) == (first != "cols")


def test_square_matrices_may_be_taken_for_square(gym):
    """Rows and columns of one name were shortened apart, and KernelBench's first problem was wrong for many."""
    task = Task(id="square", reference=SQUARE)
    verdict = gym.grade(task, SQUARE_NEW, **TERMS)
    assert verdict.is_correct and verdict.speedup is not None and verdict.checked_at.changed.keys() == {"N"}
    [note] = [finding for finding in verdict.findings if finding.kind == "hard_coded_shape"]
    assert note.severity == "note" and note.message.startswith("Right only where the task's equal sizes are equal; at")
    free = gym.grade(task.model_copy(update={"shapes": "free"}), SQUARE_NEW, **TERMS)
    assert free.status == "incorrect"
    wrong = gym.grade(task, SQUARE_NEW.replace("kept * 2.0", "kept * 2.1"), **TERMS)
    assert wrong.status == "incorrect" and "x.shape[0]" in wrong.checked_at.changed


RESIDUAL = module(
    "self.linear(x).mean(1, keepdim=True) + x",
    {"x": "torch.rand(64, WIDTH)"},
    constants=["WIDTH, FEATURES = 1024, 1024"],
    init={"width": "WIDTH", "features": "FEATURES"},
    layers={"linear": "torch.nn.Linear(width, features)"},
)
RESIDUAL_NEW = """
import torch, triton, triton.language as tl
@triton.jit
def add_kernel(mean, x, out, n, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    tl.store(out + row * n + at, tl.load(mean + row) + tl.load(x + row * n + at, at < n), at < n)
class ModelNew(torch.nn.Module):
    def __init__(self, width, features):
        super().__init__()
        self.linear = torch.nn.Linear(width, features)
    def forward(self, x):
        if self.linear.out_features != x.shape[1]:
            raise ValueError("features must equal the width")
        mean, out = self.linear(x).mean(1), torch.empty_like(x)
        add_kernel[(x.shape[0],)](mean, x, out, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
        return out
"""


def test_weights_of_equal_sides_may_be_taken_for_square(gym):
    """Arguments of the constructor that are equal were shortened apart, and a published answer refused them."""
    verdict = gym.grade(Task(id="residual", reference=RESIDUAL), RESIDUAL_NEW, **TERMS)
    (_, width), (_, features) = (verdict.checked_at.changed[name] for name in ("WIDTH", "FEATURES"))
    assert verdict.is_correct and width == features


ROWS = module("torch.softmax(x, 1)", {"x": "torch.randn(ROWS, 384)"}, constants=["ROWS = 512"])
ROWS_NEW = """
import torch, triton, triton.language as tl
@triton.jit
def rows(x, out, n, last, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    value = tl.load(x + row * n + at, at < n, -float("inf"))
    value = tl.exp(value - tl.max(value, 0))
    tl.store(out + row * n + at, value / tl.sum(value, 0), (at < n) & (row < last))
class ModelNew(torch.nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        rows[(x.shape[0],)](x, out, x.shape[1], x.shape[0], BLOCK=512)
        return out
"""
GRID = "rows[(x.shape[0],)]"
SHORTENED = {**TERMS, "checked_bytes": 256 << 10, "knock_out": True, "checks": 2, "own_seconds": 60.0}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (GRID, "rows[(512,)]"),
        ("torch.empty_like(x)", "torch.empty((512, 384), device=x.device)"),
        ("        out =", "        x = x.view(512, 384)\n        out ="),
        ("        out =", "        assert x.shape == (512, 384)\n        out ="),
        ("        out =", "        if x.shape[0] != 512:\n            return torch.softmax(x, 1)\n        out ="),
    ],
    ids=["grid", "output", "view", "assertion", "fallback"],
)
def test_sizes_written_into_a_candidate_are_checked_with_data(gym, old, new):
    task = Task(id="rows", reference=ROWS)
    candidate = ROWS_NEW.replace(old, new)
    verdict = gym.grade(task, candidate, **SHORTENED)
    assert verdict.is_correct and verdict.speedup is not None and verdict.coverage == 1.0
    assert verdict.checked_at == verdict.timed_at and not verdict.checked_at.changed
    [note] = [finding for finding in verdict.findings if finding.kind == "hard_coded_shape"]
    assert note.severity == "note" and note.message.startswith("Right at the task's own sizes, with data")


def test_own_sizes_beyond_the_budget_are_named_and_declared_sizes_stay(gym):
    task, candidate = Task(id="rows", reference=ROWS), ROWS_NEW.replace(GRID, "rows[(512,)]")
    small = gym.grade(task, candidate, **{**SHORTENED, "own_seconds": 0.01})
    [why] = [finding for finding in small.findings if finding.kind == "own_sizes_unchecked"]
    assert not small.is_correct and "may take 0.01" in why.message and "--budget" in why.message
    broken = gym.grade(task, candidate + "\nreturn", **{**SHORTENED, "own_seconds": 0.01})
    assert broken.status == "compile_error" and not broken.findings  # at other sizes it would not load either
    for terms in ({"shapes": "free"}, {"profiles": {"tiny": {"ROWS": 16}, "full": {"ROWS": 512}}}):
        assert not gym.grade(task.model_copy(update=terms), candidate, **SHORTENED).is_correct


@pytest.mark.parametrize(
    "cheat",
    [
        ROWS_NEW.replace("x.shape[0], BLOCK", "256, BLOCK"),
        ROWS_NEW.replace(
            "        return out", "        self.kept = getattr(self, 'kept', out)\n        return self.kept"
        ),
        ROWS_NEW.replace("        return out", "        return torch.softmax(x, 1)"),
        ROWS_NEW.replace("tl.load(x + row * n + at, at < n,", "tl.load(x + row * n + at, at < n - 1,"),
    ],
    ids=["half of the rows", "the first answer", "a decoy", "a column left out"],
)
@pytest.mark.parametrize("elsewhere", ["assert x.shape[0] == 512", "if x.shape[0] != 512: return torch.softmax(x, 1)"])
def test_nothing_hides_behind_sizes(gym, cheat, elsewhere):
    candidate = cheat.replace("        out =", f"        {elsewhere}\n        out =")
    verdict = gym.grade(Task(id="rows", reference=ROWS), candidate, **SHORTENED)
    assert not verdict.is_correct and "own_sizes_unchecked" not in str(verdict.findings)


IMPATIENT = {**SHORTENED, "own_seconds": 0.01}
BLOCKED = """
import torch, triton, triton.language as tl
@triton.jit
def rows(x, out, n, BLOCK: tl.constexpr, WIDTH: tl.constexpr):
    row, at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK), tl.arange(0, WIDTH)
    value = tl.load(x + row[:, None] * n + at[None, :], at[None, :] < n, -float("inf"))
    value = tl.exp(value - tl.max(value, 1)[:, None])
    tl.store(out + row[:, None] * n + at[None, :], value / tl.sum(value, 1)[:, None], at[None, :] < n)
class ModelNew(torch.nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        rows[(triton.cdiv(x.shape[0], 128),)](x, out, x.shape[1], BLOCK=128, WIDTH=512)
        return out
"""


@pytest.mark.parametrize("own", [16384, 17 << 9])
def test_masks_may_be_left_out_where_blocks_fill_the_task(gym, own):
    verdict = gym.grade(Task(id="rows", reference=ROWS.replace("512", str(own))), BLOCKED, **IMPATIENT)
    assert verdict.is_correct and verdict.speedup is not None and verdict.coverage == 1.0, verdict.findings
    [note] = [finding for finding in verdict.findings if finding.kind == "hard_coded_shape"]
    assert note.message.startswith("Right only where the task's sizes are whole blocks; at x float32[")
    assert verdict.checked_at.changed["ROWS"] == (own, 512)


@pytest.mark.parametrize(
    ("own", "old", "new", "seconds"),
    [
        ("16448", "", "", 0.01),  # blocks do not fill it
        ("16384", "tl.exp(", "tl.exp2(", 0.01),
        ("16384", "out + row[:, None]", "out + (row % 4096)[:, None]", 0.01),  # wrong where there are many rows
        ("16384", "", "", 0.0),  # where training grades
    ],
)
def test_blocks_excuse_nothing_else(gym, own, old, new, seconds):
    task = Task(id="rows", reference=ROWS.replace("512", own))
    verdict = gym.grade(task, BLOCKED.replace(old, new), **{**IMPATIENT, "own_seconds": seconds})
    assert not verdict.is_correct or (verdict.speedup is None and not verdict.coverage)


PRODUCT = module(
    "torch.relu(a @ b)", {"a": "torch.randn(ROWS, 32)", "b": "torch.randn(32, 256)"}, constants=["ROWS = 4096"]
)
GROUPED = """
import torch, triton, triton.language as tl
@triton.jit
def product(a, b, out, rows, cols, K: tl.constexpr, BLOCK: tl.constexpr, GROUP: tl.constexpr):
    place, across = tl.program_id(0), tl.cdiv(cols, BLOCK)
    down = place // (GROUP * across) * GROUP + place % GROUP
    row, k = down * BLOCK + tl.arange(0, BLOCK), tl.arange(0, K)
    col = place % (GROUP * across) // GROUP * BLOCK + tl.arange(0, BLOCK)
    inside, known = row[:, None] < rows, col[None, :] < cols
    x = tl.load(a + row[:, None] * K + k[None, :], inside, 0.0)
    y = tl.load(b + k[:, None] * cols + col[None, :], known, 0.0)
    z = tl.maximum(tl.dot(x, y, input_precision="ieee"), 0.0)
    tl.store(out + row[:, None] * cols + col[None, :], z, inside & known)
class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        rows, cols = a.shape[0], b.shape[1]
        out = torch.empty(rows, cols, device=a.device)
        programs = triton.cdiv(rows, 64) * triton.cdiv(cols, 64)
        product[(programs,)](a, b, out, rows, cols, K=32, BLOCK=64, GROUP=8)
        return out
"""


def test_a_grouped_order_may_take_whole_groups_for_granted(gym):
    verdict = gym.grade(Task(id="product", reference=PRODUCT), GROUPED, **IMPATIENT)
    assert verdict.is_correct and verdict.speedup is not None and verdict.coverage == 1.0, verdict.findings
    assert verdict.checked_at.changed["ROWS"] == (4096, 1024)


@pytest.mark.parametrize(
    ("rows", "old", "new"),
    [
        ("4160", "", ""),  # groups do not fill it
        ("4096", "// (GROUP * across) * GROUP", "// (GROUP * across) * 0"),  # the first group alone
        ("4096", "(rows, 64) *", "(min(rows, 1024), 64) *"),
    ],
)
def test_groups_excuse_nothing_else(gym, rows, old, new):
    task = Task(id="product", reference=PRODUCT.replace("4096", rows))
    verdict = gym.grade(task, GROUPED.replace(old, new), **IMPATIENT)
    assert not verdict.is_correct or (verdict.speedup is None and not verdict.coverage)


SUMS = """
import torch
import triton
import triton.language as tl


@triton.jit
def sums(x_ptr, out_ptr, n, before, PART: tl.constexpr):
    row, first = tl.program_id(0) * n, tl.program_id(1) * PART
    total = 0.0
    for start in range(tl.maximum(0, first - before), first, PART):
        total += tl.sum(tl.load(x_ptr + row + start + tl.arange(0, PART)), 0)
    at = first + tl.arange(0, PART)
    x = tl.load(x_ptr + row + at, at < n, 0.0)
    tl.store(out_ptr + row + at, tl.cumsum(x, 0) + total, at < n)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        sums[x.shape[0], triton.cdiv(x.shape[1], 64)](x, out, x.shape[1], 64, PART=64)
        return out
"""


def test_who_is_wrong_with_whole_rows_gets_nothing_for_being_right_with_short_ones(gym):
    """Of long rows each part adds the part before it alone."""
    verdict = gym.grade(builtin_task("level1/cumsum"), SUMS, profile="tiny", other_calls=False, seed=1)
    assert verdict.is_correct and verdict.speedup is None and not verdict.coverage
    assert any("wrong at x float32[" in finding.message for finding in verdict.findings)


LAST = """
import torch
import triton
import triton.language as tl


@triton.jit
def moments(x_ptr, part_ptr, ticket_ptr, mean_ptr, var_ptr, n, parts, BLOCK: tl.constexpr, PARTS: tl.constexpr):
    row, part = tl.program_id(0), tl.program_id(1)
    at = part * BLOCK + tl.arange(0, BLOCK)
    first = tl.load(x_ptr + row * n)
    x = tl.where(at < n, tl.load(x_ptr + row * n + at, at < n, 0.0) - first, 0.0)
    place = part_ptr + 2 * (row * parts + part)
    tl.store(place, tl.sum(x, 0))
    tl.store(place + 1, tl.sum(x * x, 0))
    tl.debug_barrier()
    if tl.atomic_add(ticket_ptr + row, 1, sem="acq_rel") == parts - 1:
        k = tl.arange(0, PARTS)
        total = tl.sum(tl.load(part_ptr + 2 * (row * parts + k), k < parts, 0.0), 0)
        squares = tl.sum(tl.load(part_ptr + 2 * (row * parts + k) + 1, k < parts, 0.0), 0)
        tl.store(mean_ptr + row, first + total / n)
        tl.store(var_ptr + row, (squares - total * total / n) / (n - 1))


class ModelNew(torch.nn.Module):
    def forward(self, x):
        rows, n = x.shape
        block = 32 if n < 4096 else 2048
        parts = triton.cdiv(n, block)
        part, ticket = torch.empty(rows, parts, 2, device="cuda"), torch.zeros(rows, dtype=torch.int32, device="cuda")
        mean, var = torch.empty(rows, device="cuda"), torch.empty(rows, device="cuda")
        most = triton.next_power_of_2(parts)
        moments[rows, parts](x, part, ticket, mean, var, n, parts, BLOCK=block, PARTS=most)
        return mean, var
"""


def test_the_last_of_many_programs_may_finish_a_row(gym):
    """Its part in what is stored is as small where it is checked with whole rows."""
    verdict = gym.grade(builtin_task("level1/variance"), LAST, profile="tiny", other_calls=False, seed=1)
    assert verdict.speedup is not None and (verdict.coverage or 0.0) > 0.9, verdict.findings


ONCE = """
import sys
if "loaded" in vars(sys):
    {again}
sys.loaded = True
"""


@pytest.mark.parametrize("again", ["raise RuntimeError('its operators are registered')", "__import__('os')._exit(1)"])
def test_what_cannot_be_loaded_twice_is_timed_in_a_process_of_its_own(gym, again):
    plain = grade(gym, task_named("tall_norm"), HONEST, seed=1, other_calls=True)
    once = grade(gym, task_named("tall_norm"), ONCE.format(again=again) + HONEST, seed=1, other_calls=True)
    assert once.speedup == plain.speedup and once.status == "correct"
    assert {one.kind for one in once.findings} == {one.kind for one in plain.findings}
    assert "other_calls" in once.phases


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_what_most_draws_forget_a_recurrence_is_asked_for_all_the_same(gym, seed):
    """Two slices of ten treatments leave it open in every second call: as many calls are made as deal out all."""
    cheat, honest = entry_named("gated_steps_chunks_alone"), entry_named("gated_steps_in_chunks")
    verdict = gym.grade(task_named("gated_steps"), cheat.source, seed=seed, exact=0.0)
    assert verdict.status == "incorrect" and verdict.checked_at.changed["HEADS"] == (32, 2)
    if seed == 1:
        assert gym.grade(task_named("gated_steps"), honest.source, seed=seed, exact=0.0).speedup is not None
