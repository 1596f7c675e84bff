"""``drkernel solve`` as a user runs it: Ctrl-C keeps the best, the file runs by itself, the same command goes on."""

import json
import os
import signal
import subprocess
import sys

import pytest

from farm import PYTHON
from places import ROOT
from waiting import until

EXAMPLE = ROOT / "examples" / "matmul_epilogue"
MODEL = """
import os, pathlib, sys, time
turn = int(os.environ["DRKERNEL_TURN"])
if turn == int(os.environ["HANGS_AT"]):
    pathlib.Path("asked").touch()
    time.sleep(600)
name = ["lazy", "cheat", "candidate"][turn - 1]
print("```python", pathlib.Path(sys.argv[1], name + ".py").read_text(), "```", sep="\\n")
"""


def drkernel(*arguments, cwd, **environment):
    """The command as a process."""
    env = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "120", **environment}
    command = [PYTHON, "-m", "drkernel", *map(str, arguments)]
    return subprocess.Popen(command, cwd=cwd, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def solve(cwd, **environment):
    (cwd / "model.py").write_text(MODEL)
    model = f"command:{sys.executable} model.py {EXAMPLE}"
    return drkernel(
        "solve", EXAMPLE / "reference.py", "--model", model, "--turns", 3, "--out", "s", cwd=cwd, **environment
    )


@pytest.mark.slow
@pytest.mark.timeout(200)
def test_ctrl_c_keeps_the_best_and_the_same_command_goes_on(tmp_path):
    child = solve(tmp_path, HANGS_AT="2")
    until((tmp_path / "asked").exists)
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=60)  # ends when the hanging program has been ended too
    assert child.returncode == 0, err
    assert "stopped; verifying the best so far" in err and "verified from scratch, found at turn 1" in out
    first = json.loads((tmp_path / "s" / "result.json").read_text())
    assert first["verified"] and first["attempts"] == 1 and first["timing_kind"] == "modelled"
    assert (
        first["ended_by"] == "interrupted" and "It was stopped by hand." in (tmp_path / "s" / "report.html").read_text()
    )

    child = solve(tmp_path, HANGS_AT="0")
    out, err = child.communicate(timeout=120)
    assert child.returncode == 0 and "1 attempt is there already" in err and "found at turn 3 of 3" in out
    result = json.loads((tmp_path / "s" / "result.json").read_text())
    assert result["ended_by"] == "turns" and result["tokens"] > first["tokens"]
    assert result["speedup"] > first["speedup"] > 1 and result["task"] == "matmul_epilogue"

    child = drkernel("sim", "best.py", cwd=tmp_path / "s")
    out, err = child.communicate(timeout=60)
    assert child.returncode == 0, out + err
    assert "output 0: float32 (128, 128), largest difference from PyTorch" in out and "linear_kernel" in out


@pytest.mark.slow
@pytest.mark.timeout(200)
def test_ctrl_c_before_the_first_answer_ends_at_once(tmp_path):
    child = solve(tmp_path, HANGS_AT="1")
    until((tmp_path / "asked").exists)
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=60)
    assert child.returncode == 1 and "no verified kernel in 0 attempts" in out and "Traceback" not in err
