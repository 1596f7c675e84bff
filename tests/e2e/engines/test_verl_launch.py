"""How ``drkernel train --engine verl`` starts verl's main program, stops it, and takes it up again. A small program
stands for it: it says when it is started and what ends it."""

import signal
import subprocess
import sys

import pytest

from drkernel.config import ConfigError, load_config
from drkernel.engines.verl.start import run
from drkernel.rl.run.recipe import Recipe
from waiting import gone, until

PROGRAM = """
import os, pathlib, signal, sys, time
place = pathlib.Path(sys.argv[1])
def end(number, frame):
    with open(place / "heard", "a") as file:
        file.write(signal.Signals(number).name + " ")
    if sys.argv[2] == "listens":
        sys.exit(1)
if sys.argv[2] != "plain":
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, end)
(place / "started.tmp").write_text(str(os.getpid()))
(place / "started.tmp").rename(place / "started")
while True:
    time.sleep(0.05)
"""
ATTEND = """
import os, sys
from drkernel.engines.verl.start import attend
code, stopped = attend([sys.executable, *sys.argv[1:]], dict(os.environ))
print(f"code {code} stopped {stopped}")
"""


@pytest.fixture
def start(tmp_path):
    """Start the program attended; the function returns the attending process and the program's id."""
    (tmp_path / "program.py").write_text(PROGRAM)
    running = []

    def begin(manner="listens", before=None):
        command = [sys.executable, "-c", ATTEND, str(tmp_path / "program.py"), str(tmp_path), manner]
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=before
        )
        running.append(process)
        return process, int(until(lambda: read(tmp_path / "started"), 120))

    yield begin
    for process in running:
        process.kill()
        process.communicate()


def read(path):
    return path.read_text() if path.exists() else ""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_reaches_the_program_and_is_no_failure_of_ours(tmp_path, start, number):
    process, program = start()
    process.send_signal(number)
    out, said = process.communicate(timeout=120)
    assert out == "code 1 stopped True\n" and said.count("\n") == 1 and "stopping" in said
    assert read(tmp_path / "heard").split() == [signal.Signals(number).name] and gone(program)


def test_a_program_in_the_background_of_a_script_hears_an_interrupt_too(start):
    """Shells start such jobs with SIGINT ignored, and a program that finds it so leaves it so."""
    process, program = start("plain", before=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN))
    process.send_signal(signal.SIGINT)
    assert "stopped True" in process.communicate(timeout=120)[0] and gone(program)


def test_a_killed_trainer_leaves_no_program_behind(tmp_path, start):
    process, program = start()
    process.kill()
    until(lambda: gone(program), 120)
    assert read(tmp_path / "heard").split() == ["SIGTERM"]


def test_a_second_signal_ends_a_program_that_does_not_listen(tmp_path, start):
    process, program = start("deaf")
    process.send_signal(signal.SIGINT)
    until(lambda: read(tmp_path / "heard"), 120)
    assert process.poll() is None and not gone(program)
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=120)[0] == "code -9 stopped True\n" and gone(program)


# ---- the command


@pytest.fixture
def recipe(tmp_path, monkeypatch):
    """A recipe, and a program in verl's place that logs one line and ends with the code $CODE."""
    place = tmp_path / "stand_in" / "verl" / "trainer"
    place.mkdir(parents=True)
    for package in (place, place.parent):
        (package / "__init__.py").write_text("")
    (place / "main_ppo.py").write_text(
        "import os\n"
        "open(os.environ['VERL_FILE_LOGGER_PATH'], 'w').write(os.environ['LINE'])\n"
        "raise SystemExit(int(os.environ['CODE']))\n"
    )
    monkeypatch.setattr(sys, "path", [str(tmp_path / "stand_in"), *sys.path])
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "stand_in"))
    base = {
        "name": "tiny",
        "runs": str(tmp_path),
        "policy": {"model": "somewhere", "device": "cpu"},
        "train_tasks": {"count": 2},
        "heldout_tasks": {"count": 2},
        "rollout": {"tasks": 2, "context": 480, "sampling": {"max_tokens": 160, "stop_at_fence": False}},
        "rl": {"steps": 3},
    }
    return load_config(Recipe, base=base)


def test_a_failure_is_the_commands_own_and_it_says_where_the_same_command_goes_on(tmp_path, monkeypatch, capfd, recipe):
    def begin(line, code):
        monkeypatch.setenv("LINE", line)
        monkeypatch.setenv("CODE", str(code))
        return run(recipe), capfd.readouterr().err

    code, said = begin("first", 3)
    assert code == 3 and "verl ended with code 3; no checkpoint was saved yet" in said and "begins again" in said
    place = tmp_path / "tiny" / "verl"
    (place / "checkpoints").mkdir()
    (place / "checkpoints" / "latest_checkpointed_iteration.txt").write_text("20")
    code, said = begin("second", 3)
    assert code == 3 and "continues after step 20" in said
    assert begin("third", 0) == (0, "")
    # verl overwrites its log: those of earlier starts were put aside
    kept = {path.name: path.read_text() for path in place.glob("metrics*.jsonl")}
    assert kept == {"metrics.1.jsonl": "first", "metrics.2.jsonl": "second", "metrics.jsonl": "third"}


def test_without_verl_the_command_says_how_to_install_it(monkeypatch, recipe):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"verl is not installed.*docs/engines\.md"):
        run(recipe)
