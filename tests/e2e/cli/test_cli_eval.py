"""``drkernel eval`` and ``drkernel doctor`` as a user types them."""

import io
import json
import subprocess
import sys

import pytest

from drkernel.cli import main
from drkernel.sim.spec import get_spec
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


def test_a_slower_host_makes_calls_longer_and_the_speedup_says_that_it_hangs_on_it(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    calls, device = [], []
    for host in ("7.5us", "100us"):
        with pytest.raises(SystemExit):
            main(["eval", *SOFTMAX, "--host", host, "--json"])
        verdict = Verdict.model_validate_json(capsys.readouterr().out)
        assert verdict.profile.host == f"{host}, {host[:-2]} us an operator" and verdict.profile.device.endswith(host)
        calls.append(verdict.timing.seconds)
        device.append(verdict.profile.total_seconds)
    assert device[0] == device[1] < calls[0] < calls[1]
    assert verdict.speedup.host_note.startswith("hangs on the host")


def test_doctor_says_what_this_host_takes_and_how_a_device_names_it(capsys):
    with pytest.raises(SystemExit):
        main(["doctor", "--host", "--json"])
    found = json.loads(capsys.readouterr().out)
    assert 0 < found["seconds"] < 1e-3 and get_spec(f"h200@{found['host']}").host == found["host"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere.py", "-"], "neither a file nor"),
        ([SOFTMAX[0], "nowhere.py"], "cannot read the candidate"),
        ([*SOFTMAX, "--profile", "huge"], "no size profile 'huge'"),
        ([*SOFTMAX, "--precision", "fp12"], "--precision fp12"),
        ([*SOFTMAX, "--checks", "0"], "--checks"),
        ([*SOFTMAX, "--host", "slow"], "no host named 'slow'"),
        ([*SOFTMAX, "--host", "9us", "--device", "sim:a100@modal"], "has a host"),
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
