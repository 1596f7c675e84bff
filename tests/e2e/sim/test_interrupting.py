"""A script that runs for long ends within a second of a signal, and prints what the device saw until then."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from drkernel.sim.script import run_script
from farm import PYTHON

SCRIPT = """
import sys, torch, triton, triton.language as tl

@triton.jit
def long(x, steps, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    value = tl.load(x + at)
    for _ in range(steps):
        value = value * 0.5 + tl.sin(value)
    tl.store(x + at, value)

x = torch.ones(1024, device="cuda")
long[(1,)](x, 1, 1024)
print("begins", flush=True)
long[(1,)](x, 10_000_000, 1024)
"""


@pytest.mark.parametrize(
    ("number", "code", "python"), [(signal.SIGINT, 130, sys.executable), (signal.SIGTERM, 143, PYTHON)]
)
def test_signals_stop_a_launch(tmp_path: Path, number: signal.Signals, code: int, python: str) -> None:
    script = tmp_path / "long.py"
    script.write_text(SCRIPT)
    command = [python, "-c", "import sys; from drkernel.cli import main; sys.exit(main())", "sim", str(script)]
    process = subprocess.Popen([*command, "--gpu", "h100"], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "begins\n"
    time.sleep(0.3)
    process.send_signal(number)
    started = time.monotonic()
    text = process.stdout.read()
    assert process.wait(60) == code
    assert time.monotonic() - started < 20  # a second on an idle machine, against the minutes that the launch takes
    assert "interrupted" in text and "long" in text


def test_a_launch_that_needs_more_memory_than_there_is_says_so_before_it_begins(tmp_path: Path) -> None:
    script = tmp_path / "large.py"
    script.write_text(SCRIPT.partition("x = ")[0] + "x = torch.ones(14 << 20, device='cuda')\nlong[(1,)](x, 1, 1024)\n")
    for gib, fits in ((0.3, True), (0.057, False)):
        report = run_script(script, budget_bytes=int(gib * (1 << 30)))
        assert (report.error is None) is fits and len(report.launches) == fits
    lines = script.read_text().splitlines()
    assert report.error.type == "OverBudget" and lines[report.error.line - 1].startswith("long[")
