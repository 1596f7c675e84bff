"""``drkernel.evaluate``, ``drkernel.simulate``, what Jupyter shows of them, and traces."""

import itertools
import json
import subprocess
import sys

import pytest
import torch
import triton
import triton.language as tl

import drkernel
from drkernel.verdict import Verdict
from farm import PYTHON
from places import ROOT

SOFTMAX = ROOT / "examples" / "softmax"


@triton.jit
def double_kernel(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, 2 * tl.load(x + at, at < n), at < n)


def double(count, masked=True):
    x = torch.ones(count, device="cuda")
    out = torch.empty_like(x)
    double_kernel[(triton.cdiv(count, 256),)](x, out, count if masked else count + 256, BLOCK=256)
    return {"sum": x + out, "parts": [out]}


def bars(trace):
    return [event for event in trace["traceEvents"] if event["ph"] == "X"]


def test_two_lines_grade_and_show_themselves(tmp_path):
    verdict = drkernel.evaluate(SOFTMAX / "reference.py", SOFTMAX / "candidate.py")
    assert isinstance(verdict, Verdict) and verdict.is_correct
    shown = verdict._repr_html_()
    assert "CORRECT" in shown and "softmax_kernel" in shown and "modelled" in shown and "<script" not in shown
    assert "softmax_kernel" in verdict.profile._repr_html_()
    assert verdict.correctness._repr_html_() is None  # what has no view is shown as text
    cheat = drkernel.evaluate("builtin/level1/softmax", (SOFTMAX / "cheat.py").read_text(), seed=0)
    assert cheat.is_hack and "HACK" in cheat._repr_html_()


def test_a_function_runs_on_a_simulated_gpu(tmp_path):
    run = drkernel.simulate(double, 1000, gpu="a100")
    assert run.value["sum"].tolist() == [3.0] * 1000 and run.value["parts"][0].device.type == "cpu"
    assert run.report.device == "sim:a100" and run.report.exit_code == 0
    assert "double_kernel" in run._repr_html_() and run.report._repr_html_() == run._repr_html_()
    run.trace(tmp_path / "trace.json")
    trace = json.loads((tmp_path / "trace.json").read_text())
    found = bars(trace)
    names = [bar["name"] for bar in found]
    assert names.index("double_kernel") < names.index("aten.add")
    assert sum(bar["dur"] for bar in found) == pytest.approx(1e6 * run.report.profile.total_seconds)
    assert all(a["ts"] + a["dur"] <= b["ts"] * (1 + 1e-9) + 1e-9 for a, b in itertools.pairwise(found))
    assert trace["otherData"]["times"] == "modelled"


def test_what_a_function_does_wrong_is_in_the_report():
    run = drkernel.simulate(double, 1000, masked=False)
    assert run.value is None and run.report.error is not None
    assert run.report.error.line == double.__code__.co_firstlineno + 3
    assert {finding.kind for finding in run.report.findings} == {"out_of_bounds"}  # load and store
    assert "out_of_bounds" in run._repr_html_()


def test_no_data_takes_sizes_that_could_not_be_executed():
    run = drkernel.simulate(double, 1 << 32, data=False)
    assert run.value is None and run.report.without_data is not None
    assert run.report.profile.total_seconds > 3 * (1 << 34) / 5e12  # three passes over 16 GiB, on no card faster


def test_commands_write_traces(tmp_path):
    drk = [PYTHON, "-m", "drkernel"]
    script = [*drk, "sim", str(ROOT / "examples" / "sim" / "softmax.py"), "--json", "--trace", str(tmp_path / "s.json")]
    done = subprocess.run(script, capture_output=True, text=True, timeout=200)
    report = json.loads(done.stdout)
    run = json.loads((tmp_path / "s.json").read_text())
    assert done.returncode == 0, done.stderr
    assert len(bars(run)) == len(report["spans"]) >= sum(row["calls"] for row in report["profile"]["rows"])
    graded = [*drk, "eval", str(SOFTMAX / "reference.py"), str(SOFTMAX / "candidate.py"), "--json"]
    done = subprocess.run([*graded, "--trace", str(tmp_path / "e.json")], capture_output=True, text=True, timeout=200)
    verdict = Verdict.model_validate_json(done.stdout)
    one = bars(json.loads((tmp_path / "e.json").read_text()))
    own = [bar for bar in one if bar["pid"] == 1]
    assert [bar["name"] for bar in own] == [row.name for row in verdict.profile.rows]
    assert sum(bar["dur"] for bar in own) == pytest.approx(1e6 * verdict.profile.total_seconds)


def test_importing_is_quick_and_loads_no_torch():
    code = "import drkernel, sys; drkernel.__version__; print('torch' in sys.modules, hasattr(drkernel, 'nothing'))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]
