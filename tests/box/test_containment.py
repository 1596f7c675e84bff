"""What a job starts is found and ended, whichever layers the machine offers."""

import os
import time
from pathlib import Path

import pytest
import torch

from drkernel.gym.runner import processes
from drkernel.gym.session.protocol import SessionError
from gym_harness import SETTINGS, Gym

PIDS, UID, SECCOMP = "pid namespace", "own user id", "seccomp"
MODES = {
    "user id": (PIDS,),
    "threads only": (PIDS, UID),
    "walk": (PIDS, UID, SECCOMP),
    "nothing at all": (PIDS, UID, SECCOMP, "landlock", "mount namespace", "network namespace"),
}
SPAWN = """
import time
def spawn(depth):
    for _ in range(2):
        if os.fork() == 0:
            os.setsid()
            if depth: spawn(depth - 1)
            if _ == 0: os._exit(0)
            for s in range(1, 32):
                try: signal.signal(s, signal.SIG_IGN)
                except OSError: pass
            time.sleep(100)
"""
SHORT = SETTINGS.model_copy(update={"deadline_s": 2.0})


SLOW = ("threads only", "walk")


@pytest.fixture(scope="module", params=[pytest.param(m, marks=[pytest.mark.slow] if m in SLOW else []) for m in MODES])
def mode(request):
    gym = Gym(*MODES[request.param])
    gym.name = request.param
    yield gym
    gym.factory.close()


def test_detached_descendants_are_ended(mode):
    result = mode.forward("spawn(2)\ntime.sleep(0.3)", top=SPAWN)
    if mode.name == "threads only":
        assert isinstance(result, SessionError) and result.detail.type == "PermissionError"
    assert not mode.strays() and mode.is_healthy()


def test_a_fork_bomb_is_ended(mode):
    if os.geteuid() == 0 and SECCOMP in MODES[mode.name]:
        pytest.skip("root without a user id of its own and without seccomp has no bound on processes")
    body = "while True:\n    try: os.fork()\n    except OSError: time.sleep(0.001)"
    error = mode.forward(body, settings=SHORT)
    assert isinstance(error, SessionError) and error.kind == "timeout"
    assert not mode.strays() and mode.is_healthy()


def test_crashes_and_loops(mode):
    assert mode.forward("ctypes.string_at(0)").detail.type == "SIGSEGV"
    assert mode.forward("while True: pass", settings=SHORT).kind == "timeout"
    assert mode.is_healthy()


def test_a_tree_of_folders_of_any_depth_is_removed(mode):
    body = "for _ in range(1500):\n    os.mkdir('deep'); os.chdir('deep')\nreturn inputs[0]"
    mode.forward(body, torch.zeros(1))
    assert mode.is_healthy()
    assert not list(Path(mode.factory._launcher._folder).glob("job-*"))


def test_layers_left_out_are_reported(mode):
    with mode.factory.open(SETTINGS) as session:
        report = session.report()
    for layer in MODES[mode.name]:
        assert report.missing[layer] == "switched off" and layer not in report.layers


def test_signals_stay_inside(mode):
    if SECCOMP in MODES[mode.name] and "landlock" in MODES[mode.name]:
        pytest.skip("nothing left that could refuse a signal to a process of the same user")
    text = mode.says(f"os.kill({os.getpid()}, 0)")
    assert "PermissionError" in text or "ProcessLookupError" in text
    text = mode.says("os.kill(os.getppid(), 9)")
    assert "PermissionError" in text or "ProcessLookupError" in text


def test_the_walk_finds_a_whole_tree():
    root = os.fork()
    if root == 0:
        for _ in range(2):  # two generations: 1 + 1 + 2 processes
            os.fork()
        time.sleep(60)
        os._exit(0)
    patience = time.monotonic() + 10
    while len(processes.tree_of(root)) < 4 and time.monotonic() < patience:
        time.sleep(0.05)
    assert len(processes.tree_of(root)) == 4
    processes.kill_trees([root])
    os.waitpid(root, 0)
    assert not processes.tree_of(root)[1:]
