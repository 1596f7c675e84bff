"""What docs/bench.md and docs/solve.md show is what the commands there print."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

pytestmark = [pytest.mark.slow, pytest.mark.timeout(280)]


def shown(page, command):
    """The command line that starts so, and the text block after it."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    pattern = rf"^\$ ({re.escape(command)}.*)\n```\n\n```text\n(.*?)^```$"
    found = re.search(pattern, text, re.MULTILINE | re.DOTALL)
    assert found is not None, command
    return found[1], found[2]


def printed(line, out):
    """Standard output and error of a documented command, run into ``out``."""
    words = shlex.split(line)
    assert words[0] == "drkernel"
    command = [sys.executable, "-m", "drkernel", *words[1:], "--out", str(out)]
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    env = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "120", "PATH": path}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=270)
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr


def lines(text):
    return [line.rstrip() for line in text.strip("\n").splitlines()]


def test_bench(tmp_path):
    command, expected = shown("bench.md", "drkernel bench")
    out, _ = printed(command, tmp_path / "run")
    made = lines(out)[1:-1]  # the first line names the run, the last its directory
    keep = [
        k for k, line in enumerate(lines(expected)) if not line.startswith("tokens")
    ]  # feedback quotes drawn values
    assert [made[k] for k in keep] == [lines(expected)[k] for k in keep]


def test_solve(tmp_path):
    command, expected = shown("solve.md", "drkernel solve")
    out, err = printed(command, tmp_path / "run")

    def plain(text):
        text = re.sub(r"[\d,]+ tokens|\d+% of an output", "N", text)
        return [re.sub(r"\S+/(best.py|report.html)", r"\1", line) for line in lines(text)]

    assert plain(err + out) == plain(expected)
