"""In a script that a person runs, long launches wait until something looks: the same values, or a word that they ran
not."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
import triton
import triton.language as tl
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from drkernel import sim
from drkernel.sim.gpu.lazy import Execution
from drkernel.sim.script import run_script
from launches import Record

N = 4096


@triton.jit
def double(x, out, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, 2 * tl.load(x + at, mask=at < n), mask=at < n)


@triton.jit
def accumulate(x, out, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(out + at, mask=at < n) + tl.load(x + at, mask=at < n), mask=at < n)


def _launch(kernel: Any, x: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
    kernel[(triton.cdiv(x.numel(), 256),)](x, out, x.numel(), BLOCK=256)
    return out


@contextmanager
def _script(*, lazy: bool = True, execution: Execution = "late") -> Iterator[Record]:
    """A device as a person's script has it; every launch, draw and fill waits that may."""
    with sim.device("h100", execution=execution) as dev:
        dev.engine.run_script(lazy=lazy)
        yield Record(dev)


def test_a_long_launch_runs_when_something_looks() -> None:
    with _script() as record:
        x = torch.ones(N, device="cuda")
        first, second = (_launch(double, x, torch.empty_like(x)) for _ in range(2))
        third = _launch(double, second, torch.empty_like(x))
        assert record.ran("double") == 1, "the first of a kernel runs at once"
        assert record.unexecuted == 2
        assert record.seconds[1] == pytest.approx(record.seconds[0], rel=0.2)
        x.zero_()  # what the second one reads: it runs before, and what follows with it
        assert record.ran("double") == 3 and record.unexecuted == 0
        assert [first[7].item(), second[7].item(), third[7].item()] == [2.0, 2.0, 4.0]
        assert len(record.launches) == 3, "an execution that came late is no other launch"


@pytest.mark.parametrize(("kernel", "execution"), [(accumulate, "late"), (double, "auto")])
def test_short_launches_and_kernels_that_update_run_at_once(kernel: Any, execution: Execution) -> None:
    with _script(execution=execution) as record:
        x = torch.ones(N, device="cuda")
        out = torch.zeros_like(x)
        for _ in range(3):
            _launch(kernel, x, out)
        assert record.ran(kernel.__name__) == 3 and record.unexecuted == 0
        assert out[-1] == (3 if kernel is accumulate else 2)


def test_a_late_execution_is_checked() -> None:
    """Memory that nothing wrote is found, if only when the launch runs."""
    with _script() as record:
        _launch(double, torch.ones(N, device="cuda"), torch.zeros(N, device="cuda"))
        out = _launch(double, torch.empty(N, device="cuda"), torch.zeros(N, device="cuda"))
        assert not record.findings
        assert math.isnan(out[0].item())
        assert record.kinds == ["uninitialized"]


@pytest.mark.parametrize(
    "make",
    [
        torch.rand_like,
        torch.randn_like,
        torch.zeros_like,
        torch.ones_like,
        lambda like: torch.full_like(like, 3.0),
        lambda like: like.new_zeros(5),
        lambda like: like.new_full((5,), 2.0),
    ],
)
def test_what_is_made_by_form_looks_at_nothing(make: Any) -> None:
    found = []
    for lazy in (False, True):
        with _script(lazy=lazy) as record:
            torch.manual_seed(3)
            x = torch.ones(N, device="cuda")
            out = [_launch(double, x, torch.empty_like(x)) for _ in range(2)][-1]
            made = make(out)
            assert record.ran("double") == (1 if lazy else 2)
            found.append(made.cpu())
    assert torch.equal(*found)


STEPS = st.tuples(
    st.sampled_from(
        [
            "empty",
            "randn",
            "rand_like",
            "ones_like",
            "double",
            "accumulate",
            "times",
            "add",
            "normal",
            "alias",
            "drop",
            "seed",
            "bench",
            "part",
            "read",
        ]
    ),
    st.integers(0, 3),
    st.integers(0, 3),
)


def _played(steps: list[tuple[str, int, int]], *, lazy: bool) -> tuple[list[Any], set[tuple[str, str]]]:
    """All that a program of these steps reads, and the kinds of findings."""
    seen: list[Any] = []
    with _script(lazy=lazy, execution="late" if lazy else "at once") as record:
        torch.manual_seed(0)
        slots = [torch.full((512,), float(k), device="cuda") for k in range(4)]
        for what, a, b in steps:
            if what == "empty":
                slots[b] = torch.empty(512, device="cuda")
            elif what == "randn":
                slots[b] = torch.randn(512, device="cuda")
            elif what in ("rand_like", "ones_like"):
                slots[b] = getattr(torch, what)(slots[a])
            elif what in ("double", "accumulate"):
                _launch({"double": double, "accumulate": accumulate}[what], slots[a], slots[b])
            elif what == "times":
                slots[b] = slots[a] * 3
            elif what == "add":
                slots[b].add_(slots[a])
            elif what == "normal":
                slots[b].normal_()
            elif what == "alias":
                slots[b] = slots[a].view(16, 32).view(-1)
            elif what == "part":
                slots[a][::2] = slots[b][1::2]
            elif what == "drop":
                slots[b] = torch.zeros(512, device="cuda")
            elif what == "seed":
                torch.manual_seed(a)
            elif what == "bench":
                triton.testing.do_bench(lambda a=a, b=b: _launch(double, slots[a], slots[b]))
            else:
                seen.append(slots[a].cpu())
        seen += [slot.cpu() for slot in slots]
        return seen, {(finding.kind, finding.kernel) for finding in record.findings}


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(STEPS, max_size=14))
@example([("double", 1, 0), ("randn", 0, 2), ("double", 2, 0), ("double", 2, 2), ("part", 0, 2), ("double", 0, 1)])
def test_programs_compute_the_same_when_launches_wait(steps: list[tuple[str, int, int]]) -> None:
    eager, found = _played(steps, lazy=False)
    late, told = _played(steps, lazy=True)
    for one, other in zip(eager, late, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=0, equal_nan=True)
    assert told <= found


SCRIPT = """
import torch, triton, triton.language as tl

@triton.jit
def product(a, b, c, K, B: tl.constexpr):
    row, col = tl.program_id(0) * B + tl.arange(0, B), tl.program_id(1) * B + tl.arange(0, B)
    total = tl.zeros((B, B), tl.float32)
    for k in range(0, K, B):
        inner = k + tl.arange(0, B)
        total = tl.dot(tl.load(a + row[:, None] * K + inner), tl.load(b + inner[:, None] * K + col), total)
    tl.store(c + row[:, None] * K + col, total.to(tl.float16))

for n in SIZES:
    a, b = (torch.randn(n, n, device="cuda", dtype=torch.float16) for _ in range(2))
    c = torch.empty_like(a)
    product[(n // 64, n // 64)](a, b, c, n, B=64)
"""


def _unexecuted(folder: Path, sizes: tuple[int, ...], more: str = "", **options: Any) -> list[int]:
    script = folder / "product.py"
    script.write_text(SCRIPT.replace("SIZES", str(sizes)) + more)
    report = run_script(script, **options)
    assert report.error is None and [row.calls for row in report.launches] == [1] * len(sizes)
    return [row.unexecuted for row in report.launches]


def test_reports_count_what_never_ran(tmp_path: Path) -> None:
    assert _unexecuted(tmp_path, (512, 128, 4096)) == [0, 0, 1], "what takes long and nothing read"
    assert _unexecuted(tmp_path, (128, 256), execution="late") == [0, 1]
    assert _unexecuted(tmp_path, (128, 256), execution="late", checks="full") == [0, 0]
    assert _unexecuted(tmp_path, (128, 256), "print(c[0, 0].item())\n", execution="late") == [0, 0]
