"""What docs/bench.md and docs/solve.md show is what the commands there print."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from farm import PYTHON
from places import ROOT

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
    command = [PYTHON, "-m", "drkernel", *words[1:], "--out", str(out)]
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    env = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "120", "PATH": path}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=270)
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr


SPEEDUP = re.compile(r"(\d+\.\d+)x")
DRAWN = re.compile(r"[\d,]+ tokens|\d+% of an output|about [\d,]+ (read|written)|\d+% own|[\d.]+% of device time")
"""What depends on inputs that are drawn afresh (a model is told values of them), or a little on the cost model."""
PATHS = re.compile(r"\S+/(best.py|report.html)")


def agree(made, expected):
    """The same lines; speedups within 10%, so that a better cost model does not make a page wrong."""

    def plain(text):
        text = PATHS.sub(r"\1", DRAWN.sub("N", SPEEDUP.sub("Nx", text)))
        return [line.rstrip() for line in text.strip("\n").splitlines()]

    assert plain(made) == plain(expected)
    for new, old in zip(SPEEDUP.findall(made), SPEEDUP.findall(expected), strict=True):
        assert float(new) == pytest.approx(float(old), rel=0.1)


def test_bench(tmp_path):
    command, expected = shown("bench.md", "drkernel bench")
    out, _ = printed(command, tmp_path / "run")
    agree("\n".join(out.splitlines()[1:-1]), expected)  # the first line names the run, the last its directory


def test_solve(tmp_path):
    command, expected = shown("solve.md", "drkernel solve")
    out, err = printed(command, tmp_path / "run")
    agree(err.partition("\n\n")[2] + out, expected)  # the config comes first
