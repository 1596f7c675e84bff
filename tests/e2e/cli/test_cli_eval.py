"""``drkernel eval`` and ``drkernel doctor`` as a user types them."""

import io
import json
import os
import subprocess
import sys
from types import SimpleNamespace

import pytest

import recording_driver
from drkernel.cli import main
from drkernel.sim.spec import get_spec
from drkernel.verdict import Verdict
from places import EXAMPLES

SOFTMAX = [str(EXAMPLES / "softmax" / "reference.py"), str(EXAMPLES / "softmax" / "candidate.py")]


@pytest.fixture(scope="module")
def graded(tmp_path_factory):
    """``drkernel eval --json`` started cold, and the driver's functions that a process of it called."""
    folder = tmp_path_factory.mktemp("driver")
    log = recording_driver.record(folder)
    for place in (folder, *folder.parents[:3]):  # a sandboxed process is another user
        place.chmod(place.stat().st_mode | 0o055)
    environment = {**os.environ, "LD_LIBRARY_PATH": str(folder)}

    def python(*args: str) -> subprocess.CompletedProcess:
        command = [sys.executable, *args]
        return subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment)

    done = python("-m", "drkernel", "eval", *SOFTMAX, "--json")
    return SimpleNamespace(done=done, python=python, calls=lambda: recording_driver.calls(log))


def test_json_is_a_verdict_and_nothing_else(graded):
    verdict = Verdict.model_validate_json(graded.done.stdout)
    assert graded.done.returncode == 0 and verdict.is_correct and verdict.task_id == "softmax"


def test_grading_on_a_simulated_gpu_calls_no_driver(graded):
    """Neither command nor zygote, judge, device or runner: whoever forks after that has no CUDA, and a card that only
    stands there is not woken. With a build of torch for CUDA this sees torch's own calls, too."""
    assert graded.done.returncode == 0 and graded.calls() == []
    asks = "import ctypes; ctypes.CDLL('libcuda.so.1').cuInit(0); ctypes.CDLL('libnvidia-ml.so.1').nvmlInit_v2()"
    assert graded.python("-c", asks).returncode == 0
    assert [call.split()[1] for call in graded.calls()] == ["cuInit", "nvmlInit_v2"], "the libraries do record"


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
    command = [sys.executable, "-m", "drkernel", "doctor", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    checks = {check["name"]: check for check in json.loads(done.stdout)}
    assert done.returncode == 0 and checks["grading"]["level"] == "ok" and "correct" in checks["grading"]["detail"]
    assert "active" in {check["detail"] for check in checks.values()}
