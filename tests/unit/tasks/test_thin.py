"""Thin sizes: what is shortened, what stays, and how independence of positions is found out."""

from pathlib import Path

import pytest
import torch

from drkernel.task import Task, TaskError
from drkernel.tasks import thin
from drkernel.tasks.axes import WHOLE, SizedSource, smaller
from drkernel.tasks.cost import ScaleLimits
from drkernel.tasks.loaders import builtin_task
from drkernel.tasks.reference import load_reference
from drkernel.tasks.thin import goes_in_steps, of_one_piece, own_source, thin_sizing, thin_sizings, with_all_steps

LIMITS = ScaleLimits(bytes=64 << 20, flops=2e9)


def task(forward: str, inputs: str, constants: str, init: str = "pass", init_inputs: str = "") -> Task:
    source = f"""
import torch
import torch.nn as nn
import torch.nn.functional as F

{constants}

class Model(nn.Module):
    def __init__(self, *sizes):
        super().__init__()
        {init}

    def forward(self, x, y=None, z=None):
        {forward}

def get_inputs():
    return [{inputs}]

def get_init_inputs():
    return [{init_inputs}]
"""
    return Task(id="t", reference=source)


def test_a_row_stays_a_row() -> None:
    long_rows = task("return torch.softmax(x, -1)", "torch.rand(batch, dim)", "batch = 4096\ndim = 393216")
    best, *others = thin_sizings(long_rows, LIMITS)
    assert best.changed == {"batch": (4096, 16)} and best.kept_rows
    assert best.cost.over(LIMITS) <= 1
    assert [value.shape for value in load_reference(best.source).draw_inputs(0)] == [(16, 393216)]
    assert len(others) == 2 and others[0].changed["dim"][1] < 393216 and "batch" not in others[0].changed
    assert not others[0].kept_rows
    assert others[1].changed == {"batch": (4096, 4)} and others[1].kept_rows  # a second size, to see what grows


def test_no_more_is_shortened_than_the_limits_ask_for() -> None:
    rows = task("return torch.relu(x)", "torch.rand(batch, dim)", "batch = 4096\ndim = 16384")
    taken = [thin_sizings(rows, ScaleLimits(bytes=size << 20, flops=1e9))[0] for size in (1, 16, 64, 1024)]
    assert [sizing.changed.get("batch", (0, 4096))[1] for sizing in taken] == [4, 128, 512, 4096]
    assert taken[-1].changed == {} and taken[-1].source == rows.reference


def test_sides_of_a_product_are_shortened_before_k() -> None:
    product = task("return x @ y", "torch.rand(M, K), torch.rand(K, N)", "M = 2048\nK = 8192\nN = 4096")
    best, *others = thin_sizings(product, LIMITS)
    assert best.changed.keys() == {"M", "N"} and best.kept_rows
    assert {label for other in others for label in ("M", "N") if label not in other.changed} == {"M", "N"}


def test_an_axis_whose_positions_belong_together_can_be_kept_whole() -> None:
    heads = task(
        "return torch.softmax(x @ y.transpose(2, 3), -1) @ z",
        ", ".join(["torch.rand(B, H, S, D)"] * 3),
        "B = 32\nH = 32\nS = 512\nD = 1024",
    )
    limits = ScaleLimits(bytes=16 << 20, flops=1e8)
    first = thin_sizing(heads, limits).changed
    assert first.keys() == {"B", "H", "S", "D"} and of_one_piece(heads, first) == ["D", "S"]
    for kept, other in (("D", "S"), ("S", "D")):
        marked = heads.model_copy(update={"reference": f"{heads.reference}\n{WHOLE}{kept}\n"})
        sizing = thin_sizing(marked, limits)
        assert kept not in sizing.changed and sizing.changed[other][1] < first[other][1]
        assert sizing.cost.over(limits) <= 1


def test_one_size_of_square_matrices_is_three_axes() -> None:
    product = task("return x @ y", "torch.rand(N, N), torch.rand(N, N)", "N = 2048 * 2")
    best = thin_sizings(product, LIMITS)[0]
    assert best.changed.keys() == {"x.shape[0]", "y.shape[1]"} and best.kept_rows
    (left, right), own = load_reference(best.source).draw_inputs(0), 4096
    assert left.shape[1] == right.shape[0] == own and left.shape[0] < own > right.shape[1]
    symmetric = task("return (x + x.T) @ y", "torch.rand(N, N), torch.rand(N, N)", "N = 4096")
    assert thin_sizings(symmetric, LIMITS)[0].changed.keys() != {"x.shape[0]", "y.shape[1]"}


def test_one_size_stays_one_where_the_reference_slices_on_the_host() -> None:
    """A slice up to a length is as good as any of a shorter axis: nothing shows that two axes have to be as long."""
    inputs = "torch.randn(2, LONGEST, 8), torch.randn(2, LONGEST, 8), torch.randint(1, LONGEST + 1, (2,))"
    dot = "return torch.stack([(a[:n] * b[:n]).sum(0) for a, b, n in zip(x, y, z.tolist())])"
    sized = thin_sizing(task(dot, inputs, "LONGEST = 4096"), ScaleLimits(bytes=1 << 14, flops=1e9))
    assert sized.changed.keys() == {"LONGEST"} and sized.cost.over(ScaleLimits(bytes=1 << 14, flops=1e9)) <= 1


def test_a_matrix_of_some_structure_stays_square() -> None:
    for kind in ("torch.triu(torch.rand(N, N))", "torch.rand(N, N).tril()", "(lambda a: a + a.mT)(torch.randn(N, N))"):
        product = task("return x @ y", f"{kind}, torch.rand(N, N)", "N = 4096")
        best = thin_sizings(product, LIMITS)[0]
        left, right = load_reference(best.source).draw_inputs(0)
        assert best.changed.keys() == {"N"} and left.shape == right.shape and best.cost.over(LIMITS) <= 1


@pytest.mark.parametrize(
    ("forward", "parallel"),
    [
        ("return torch.relu(x)", {"A", "B", "C"}),
        ("return torch.softmax(x, 1)", {"A", "C"}),
        ("return torch.cumsum(x, 1)", {"A", "C"}),
        ("return x - x.flip(0)", {"B", "C"}),
        ("return x + torch.arange(x.shape[2], device=x.device)", {"A", "B"}),
        ("return x.sum(2)", {"A", "B"}),
        ("return x.mean()", set()),
        ("return F.dropout(F.max_pool1d(x, 3, 1), 0.0)", {"A", "B"}),
        ("return F.layer_norm(x, x.shape[1:])", {"A"}),
        ("return x.transpose(0, 2) * 2, x.amax(1)", {"A", "C"}),
    ],
)
def test_positions_are_independent_or_not(forward: str, parallel: set[str]) -> None:
    sized = SizedSource(task(forward, "torch.randn(A, B, C)", "A = 64\nB = 60\nC = 48").reference)
    assert {label for label, knob in sized.knobs.items() if knob.parallel} == parallel


def test_statistics_of_a_batch_are_no_independent_rows() -> None:
    normed = task(
        "return self.norm(x)", "torch.rand(batch, width)", "batch = 65536\nwidth = 512",
        "self.norm = nn.BatchNorm1d(*sizes)", "width",
    )  # fmt: skip
    best = thin_sizings(normed, LIMITS)[0]
    assert best.changed.keys() == {"batch"} and not best.kept_rows


def test_too_large_weights_are_shrunk_and_said_so() -> None:
    linear = task(
        "return torch.relu(self.linear(x))", "torch.rand(batch, wide)", "batch = 1024\nwide = 8192\nout = 8192",
        "self.linear = nn.Linear(*sizes)", "wide, out",
    )  # fmt: skip
    best = thin_sizings(linear, LIMITS)[0]
    assert best.cost.over(LIMITS) <= 1 and not best.kept_rows
    assert best.changed["out"][1] < 8192 and "wide" not in best.changed and best.changed["batch"][1] >= 16


def test_what_cannot_be_shortened_says_how_far_it_is_over() -> None:
    fixed = task(
        "return self.linear(x)", "torch.rand(batch, 4096)", "batch = 64", "self.linear = nn.Linear(4096, 8192)"
    )
    assert thin_sizings(fixed, ScaleLimits(bytes=1 << 20, flops=1e9))[0].cost.over(LIMITS) > 1


def test_own_sizes_are_those_of_the_full_profile() -> None:
    builtin = builtin_task("level1/softmax")
    assert own_source(builtin) == builtin.reference
    full = builtin.model_copy(update={"profiles": {"full": {"ROWS": 8, "COLS": 96}}})
    assert load_reference(own_source(full)).draw_inputs(0)[0].shape == (8, 96)


def test_what_does_not_run_is_refused() -> None:
    with pytest.raises(TaskError):
        thin_sizings(task("return x @ x", "torch.rand(M, K)", "M = 512\nK = 1024"), LIMITS)


def test_multiples_of_sixteen_stay_so_as_long_as_they_can() -> None:
    size, seen = 393216, []
    while smaller(size) < size:
        size = smaller(size)
        seen.append(size)
    assert seen[-3:] == [16, 4, 2] and all(one % 16 == 0 for one in seen[:-2])
    odd = 33
    while smaller(odd) < odd:
        odd = smaller(odd)
        assert odd % 16 and odd > 1


def test_a_sizing_takes_no_memory_of_the_task() -> None:
    huge = task("return torch.relu(x)", "torch.rand(batch, dim)", "batch = 1048576\ndim = 393216")
    best = thin_sizings(huge, LIMITS)[0]  # 1.6 TB as it stands
    assert best.cost.bytes <= LIMITS.bytes and isinstance(load_reference(best.source).draw_inputs(0)[0], torch.Tensor)


def test_equal_numbers_in_get_inputs_are_one_size() -> None:
    loss = "return F.cross_entropy(x, y, reduction='none')"
    inputs = "torch.randn(4096, 8192), torch.randint(0, 8192, (4096,))"
    best = thin_sizings(task(loss, inputs, ""), ScaleLimits(bytes=4 << 20, flops=1e9))[0]
    x, y = load_reference(best.source).draw_inputs(0)
    assert best.kept_rows and x.shape[1] == 8192 and x.shape[0] == y.shape[0] < 4096
    twice = task("return torch.softmax(x + y, -1)", "torch.randn(4096, 8192), torch.randn(4096, 8192)", "")
    best = thin_sizings(twice, ScaleLimits(bytes=4 << 20, flops=1e9))[0]
    assert best.kept_rows and [value.shape[1] for value in load_reference(best.source).draw_inputs(0)] == [8192, 8192]


@pytest.mark.parametrize("inputs", ["randn(512, 256), randn(512, 512)", "randn(N, 256), randn(N, N)"])
def test_as_many_rows_as_a_module_has_columns_are_a_size_of_their_own(inputs: str) -> None:
    init, inputs = "self.cell = nn.GRUCell(*sizes)", inputs.replace("randn", "torch.randn")
    cell = task("return self.cell(x, y)", inputs, "N = 512", init, "256, 512")
    best = thin_sizings(cell, ScaleLimits(bytes=8 << 20, flops=1e8))[0]
    x, y = load_reference(best.source).draw_inputs(0)
    assert best.kept_rows and x.shape == (x.shape[0], 256) and y.shape == (x.shape[0], 512) and x.shape[0] < 512


@pytest.mark.parametrize("most", ["1025", "1000"])
def test_an_axis_that_lengths_count_stays_or_takes_them_along(most: str) -> None:
    ragged = "return (x * (torch.arange(x.shape[1])[None, :] < y[:, None])[:, :, None]).sum(1)"
    inputs = f"torch.randn(2, 1024, 512), torch.randint(1, {most}, (2,))"
    best = thin_sizings(task(ragged, inputs, ""), ScaleLimits(bytes=1 << 20, flops=1e9))[0]
    x, lengths = load_reference(best.source).draw_inputs(0)
    assert best.changed and int(lengths.max()) <= x.shape[1]


def test_sizes_at_which_the_reference_does_not_run_are_not_taken() -> None:
    loss, inputs = "return F.cross_entropy(x, y, reduction='none')", "torch.randn(N, N), torch.randint(0, N, (N,))"
    square = task(loss, inputs, "N = 2048")
    best = thin_sizings(square, ScaleLimits(bytes=1 << 20, flops=1e9))[0]
    reference = load_reference(best.source)
    reference.build(0)(*reference.draw_inputs(0))


def test_rows_of_results_in_fp8_are_independent() -> None:
    quantised = task("return (x * 2).to(torch.float8_e4m3fn)", "torch.randn(N, 512)", "N = 65536")
    best = thin_sizings(quantised, ScaleLimits(bytes=8 << 20, flops=1e8))[0]
    assert best.kept_rows and load_reference(best.source).draw_inputs(0)[0].shape[0] < 65536


def test_steps_of_a_recurrence_are_all_taken_where_they_are_looked_for() -> None:
    steps = task(
        "for step in range(x.shape[1]):\n            x[:, step] *= self.weight\n        return x",
        "torch.rand(batch, length, width)",
        "batch = 8\nlength = 64\nwidth = 2048",
        init="self.weight = nn.Parameter(torch.rand(width))",
        init_inputs="width",
    )
    limits = ScaleLimits(bytes=1 << 20, flops=1e9)
    assert "length" in thin_sizing(steps, limits).changed
    (found,) = with_all_steps(steps, limits, limits)
    assert "length" not in found.changed and found.cost.over(limits) <= 1
    whole = task("return torch.relu(x)", "torch.rand(batch, dim)", "batch = 4096\ndim = 16384")
    assert with_all_steps(whole, limits, limits) == ()
    assert goes_in_steps(steps) and not goes_in_steps(whole)


def test_a_recurrent_layer_takes_as_many_steps_as_its_input_is_long() -> None:
    layer = task(
        "return self.layer(x)[0]",
        "torch.rand(batch, length, width)",
        "batch = 8\nlength = 64\nwidth = 32",
        init="self.layer = nn.LSTM(width, width, batch_first=True)",
        init_inputs="width",
    )
    limits = ScaleLimits(bytes=1 << 20, flops=5e5)
    assert "length" in thin_sizing(layer, limits).changed
    (found,) = with_all_steps(layer, limits, ScaleLimits(bytes=1 << 20, flops=4e7))
    assert "width" not in found.changed and "length" not in found.changed
    assert goes_in_steps(layer)


QUANTISED = """N, K, GROUP_SIZE = 4096, 4096, 128
class Quantised(nn.Module):
    def __init__(self, n, k, group_size=GROUP_SIZE):
        super().__init__()
        self.size, self.weight = group_size, nn.Parameter(torch.rand(k, n))
        self.scales = nn.Parameter(torch.rand(k // group_size, n))"""


def test_a_number_that_a_candidate_is_not_told_stays() -> None:
    forward = "w = self.inner.weight * self.inner.scales.repeat_interleave(self.inner.size, 0)\n        return x @ w"
    inner, inputs = "self.inner = Quantised(*sizes)", "torch.rand(16, K)"
    for given, told in (("N, K", False), ("N, K, GROUP_SIZE", True)):
        quantised = task(forward, inputs, QUANTISED, inner, given)
        changed = thin_sizing(quantised, ScaleLimits(bytes=1 << 20, flops=1e9)).changed
        assert "N" in changed and ("GROUP_SIZE" in SizedSource(quantised.reference).knobs) == told
        assert "GROUP_SIZE" not in changed, "128 positions of a group are no 128 groups"


def test_a_call_costs_a_little_more_rather_than_axes_are_shorter_than_tiles() -> None:
    loop = "for _ in range(64):\n            x = torch.relu(x @ self.weight) @ self.weight.T\n        return x"
    init = "self.weight = nn.Parameter(torch.rand(width, width))"
    looped = task(loop, "torch.rand(512, width)", "width = 128", init, "width")
    for most, shortest in ((1 << 13, 16), (1 << 12, 4)):
        best = thin_sizing(looped, ScaleLimits(bytes=most, flops=1e9))
        assert best.changed["width"] == (128, shortest) and best.cost.bytes > most


def test_a_sizing_is_searched_for_once_on_a_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    rows, limits = task("return torch.relu(x)", "torch.rand(N, 512)", "N = 4096"), ScaleLimits(bytes=1 << 20, flops=1e9)
    first = thin_sizings(rows, limits)
    for search in (thin._best, thin._thin):
        search.cache_clear()
    monkeypatch.setattr(thin, "_Search", None)
    assert thin_sizings(rows, limits) == first and thin_sizing(rows, limits) == first[0]
    with pytest.raises(TypeError):
        thin_sizings(rows, ScaleLimits(bytes=1 << 19, flops=1e9))
