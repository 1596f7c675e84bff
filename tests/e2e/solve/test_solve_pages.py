"""What docs/bench.md shows is what the command there prints; for docs/solve.md see ``test_page_commands.py``."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from farm import PYTHON
from places import DOCS, ROOT

SHOWN = re.compile(r"^\$ drkernel (bench .*)\n```\n\n```text\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SPEEDUP = re.compile(r"(\d+\.\d+)x")
DRAWN = re.compile(r"[\d,]+ tokens|[\d.]+% of device time")
"""what depends on inputs that are drawn afresh, or a little on the cost model"""


def plain(text):
    return [line.rstrip() for line in DRAWN.sub("N", SPEEDUP.sub("Nx", text)).strip("\n").splitlines()]


@pytest.mark.slow
@pytest.mark.timeout(280)
def test_bench(tmp_path):
    """The same lines; speedups within 10%, so that a better cost model does not make the page wrong."""
    line, expected = SHOWN.search((DOCS / "bench.md").read_text(encoding="utf-8")).groups()
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    env = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "120", "PATH": path}
    command = [PYTHON, "-m", "drkernel", *shlex.split(line), "--out", str(tmp_path / "run")]
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=270)
    assert done.returncode == 0, done.stderr
    made = "\n".join(done.stdout.splitlines()[1:-1])  # the first line names the run, the last its directory
    assert plain(made) == plain(expected)
    for new, old in zip(SPEEDUP.findall(made), SPEEDUP.findall(expected), strict=True):
        assert float(new) == pytest.approx(float(old), rel=0.1)
