"""In a script that a person runs, long launches wait until something looks: the same values, or a word that they ran
not."""

from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import triton
import triton.language as tl
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from drkernel import sim
from drkernel.sim.gpu import trials
from drkernel.sim.script import run_script
from harness import names_of_executed

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


def _everything_is_long(patch: pytest.MonkeyPatch) -> list[str]:
    """Let every launch, draw and fill wait; returns the names of the launches that are executed from now on."""
    for name in ("LONG_SECONDS", "WORTH_BYTES", "TUNING_BYTES", "DRAWN_BYTES"):
        patch.setattr(trials, name, 0)
    return names_of_executed(patch)


def test_a_long_launch_runs_when_something_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    executed = _everything_is_long(monkeypatch)
    with sim.device("h100") as dev:
        dev.engine.run_script(lazy=True)
        x = torch.ones(N, device="cuda")
        first, second = (_launch(double, x, torch.empty_like(x)) for _ in range(2))
        third = _launch(double, second, torch.empty_like(x))
        assert executed == ["double"], "the first of a kernel runs at once"
        assert sum(dev.engine.trials.unexecuted.values()) == 2
        times = [launch.seconds for launch in dev.launches]
        assert times[1] == pytest.approx(times[0], rel=0.2)
        x.zero_()  # what the second one reads: it runs before, and what follows with it
        assert executed == ["double"] * 3 and not sum(dev.engine.trials.unexecuted.values())
        assert [first[7].item(), second[7].item(), third[7].item()] == [2.0, 2.0, 4.0]
        assert len(dev.launches) == 3, "an execution that came late is no other launch"


def test_short_launches_and_kernels_that_update_run_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    executed = _everything_is_long(monkeypatch)
    with sim.device("h100") as dev:
        dev.engine.run_script(lazy=True)
        x = torch.ones(N, device="cuda")
        out = torch.zeros_like(x)
        for _ in range(3):
            _launch(accumulate, x, out)
        assert len(executed) == 3
        monkeypatch.setattr(trials, "LONG_SECONDS", 1.0)
        for _ in range(3):
            _launch(double, x, out)
        assert len(executed) == 6


def test_a_late_execution_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory that nothing wrote is found, if only when the launch runs."""
    _everything_is_long(monkeypatch)
    with sim.device("h100") as dev:
        dev.engine.run_script(lazy=True)
        _launch(double, torch.ones(N, device="cuda"), torch.zeros(N, device="cuda"))
        out = _launch(double, torch.empty(N, device="cuda"), torch.zeros(N, device="cuda"))
        assert not dev.findings
        assert math.isnan(out[0].item())
        assert [finding.kind for finding in dev.findings] == ["uninitialized"]


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
def test_what_is_made_by_form_looks_at_nothing(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for lazy in (False, True):
        with monkeypatch.context() as patch, sim.device("h100") as dev:
            executed = _everything_is_long(patch)
            dev.engine.run_script(lazy=lazy)
            torch.manual_seed(3)
            x = torch.ones(N, device="cuda")
            out = [_launch(double, x, torch.empty_like(x)) for _ in range(2)][-1]
            made = make(out)
            assert len(executed) == (1 if lazy else 2)
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
    with pytest.MonkeyPatch.context() as patch, sim.device("h100") as dev:
        if lazy:
            _everything_is_long(patch)
        dev.engine.run_script(lazy=lazy)
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
        return seen, {(finding.kind, finding.kernel) for finding in dev.findings}


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

for n in (128, 4096):
    a, b = (torch.randn(n, n, device="cuda", dtype=torch.float16) for _ in range(2))
    c = torch.empty_like(a)
    product[(n // 64, n // 64)](a, b, c, n, B=64)
"""


def test_what_never_ran_is_told(tmp_path: Path) -> None:
    script = tmp_path / "product.py"
    script.write_text(SCRIPT + "print('done')\n")
    done = subprocess.run(
        [sys.executable, "-m", "drkernel", "sim", str(script)], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    said = " ".join(done.stdout.split())
    assert "product: 1 long launch counted from a sample of programs, not executed: nothing read" in said


def test_reports_count_what_never_ran(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trials, "LONG_SECONDS", 0.0)
    monkeypatch.setattr(trials, "WORTH_BYTES", 0)
    script = tmp_path / "product.py"
    script.write_text(SCRIPT.replace("4096", "256"))
    assert [row.unexecuted for row in run_script(script).launches] == [0, 1]
    assert [row.unexecuted for row in run_script(script, checks="full").launches] == [0, 0]
    script.write_text(SCRIPT.replace("4096", "256") + "print(c[0, 0].item())\n")
    assert [row.unexecuted for row in run_script(script).launches] == [0, 0]
