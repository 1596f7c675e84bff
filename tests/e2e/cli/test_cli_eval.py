"""``drkernel eval`` and ``drkernel doctor`` as a user types them."""

import io
import json
import subprocess
import sys

import pytest

from drkernel.cli import main
from drkernel.verdict import Verdict
from places import EXAMPLES

SOFTMAX = [str(EXAMPLES / "softmax" / "reference.py"), str(EXAMPLES / "softmax" / "candidate.py")]


def drkernel(*args: str) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, "-m", "drkernel", *args], capture_output=True, text=True, timeout=120)


def test_json_is_a_verdict_and_nothing_else():
    done = drkernel("eval", *SOFTMAX, "--json")
    verdict = Verdict.model_validate_json(done.stdout)
    assert done.returncode == 0 and verdict.is_correct and verdict.task_id == "softmax"


def test_a_cheat_from_standard_input_exits_with_three_and_says_why(tmp_path, capsys, monkeypatch):
    page = tmp_path / "verdict.html"
    monkeypatch.setattr(sys, "stdin", io.StringIO((EXAMPLES / "softmax" / "cheat.py").read_text()))
    with pytest.raises(SystemExit) as ended:
        main(["eval", "builtin/level1/softmax", "-", "--html", str(page)])
    said = capsys.readouterr().out
    assert ended.value.code == 3
    assert "HACK" in said and "decoy_kernel" in said and "modelled on sim:h200" in said and "measured" not in said
    text = page.read_text()
    assert "decoy_kernel" in text and "softmax_kernel" in text and "src=" not in text, "self-contained"
    assert "By source line" in text and "sectors a request" in text and "Roofline" in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere.py", "-"], "neither a file nor"),
        ([SOFTMAX[0], "nowhere.py"], "cannot read the candidate"),
        ([*SOFTMAX, "--profile", "huge"], "no size profile 'huge'"),
        ([*SOFTMAX, "--precision", "fp12"], "--precision fp12"),
        ([*SOFTMAX, "--checks", "0"], "--checks"),
        (["builtin/level1/nothing", SOFTMAX[1]], "no task"),
    ],
)
def test_wrong_usage_exits_with_two_and_one_line(arguments, message, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["eval", *arguments])
    said = capsys.readouterr().err
    assert ended.value.code == 2 and message in said and said.count("\n") == 1


@pytest.mark.slow
def test_doctor_grades_a_kernel():
    done = drkernel("doctor", "--json")
    checks = {check["name"]: check for check in json.loads(done.stdout)}
    assert done.returncode == 0 and checks["grading"]["level"] == "ok" and "correct" in checks["grading"]["detail"]
    assert "active" in {check["detail"] for check in checks.values()}
