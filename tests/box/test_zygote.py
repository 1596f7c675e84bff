"""The zygote: what happens when its processes, it, or the judge are killed."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
import torch

import farm
from drkernel.gym.runner.launcher import JobTerms, Launcher, ZygoteError
from drkernel.gym.sandbox.layers import RunnerLimits
from drkernel.gym.session.protocol import SessionError
from drkernel.gym.session.simulated import SimulatedSession
from drkernel.sim.host.triton_frontend import kernels_on_disk
from farm import PYTHON
from gym_harness import HEAD, SETTINGS, Gym
from waiting import until

ECHO = "class ModelNew:\n    def __call__(self, x):\n        import time; time.sleep(0.5); return x + 1"


@pytest.fixture(scope="module")
def own():
    """A gym of this module's own: its zygote is killed."""
    gym = Gym()
    yield gym
    gym.factory.close()


@pytest.fixture(scope="module")
def cold():
    """A gym whose zygote is started as users' are."""
    farm.use_in_factories(cold=True)
    gym = Gym()
    farm.use_in_factories()
    yield gym
    gym.factory.close()


@pytest.mark.parametrize("who, kind", [("runner", "runtime_error"), ("device", "infra_error")])
def test_a_killed_process_is_told_apart(own, who, kind):
    with own.factory.open(SETTINGS) as session:
        session.load(ECHO, [], {}, seed=0)
        handle = session.put(torch.zeros(1))
        os.kill(session.job.pids[who], signal.SIGKILL)
        with pytest.raises(SessionError) as caught:
            session.call([handle])
        assert caught.value.kind == kind
        session.kill()
        assert session.job.wait_until_gone(30)
    assert own.is_healthy()


def test_a_dead_zygote_takes_its_jobs_along_and_is_replaced(own):
    session = own.factory.open(SETTINGS)
    session.load(ECHO, [], {}, seed=0)
    pids = list(session.job.pids.values())
    os.kill(own.factory._launcher.pid, signal.SIGKILL)
    with pytest.raises(SessionError) as caught:
        session.call([1.0])
    assert caught.value.kind == "infra_error"
    assert until(lambda: not any(psutil.pid_exists(pid) for pid in pids))
    assert own.is_healthy() and own.factory.health()["zygotes_started"] == 2


@pytest.mark.timeout(30)
def test_a_job_asked_of_a_zygote_that_has_just_died_fails_at_once():
    """It was waited for until the evaluation's last deadline: the output of the job that never was had no end."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    launcher = Launcher(joined=ours)
    theirs.send(json.dumps({"event": "ready", "missing": {}, "nursery": 0, "folder": "/none"}).encode())
    launcher.wait_ready()
    theirs.close()
    with pytest.raises(ZygoteError, match="the zygote is gone"):
        launcher.spawn(JobTerms("sim:h200", RunnerLimits(), 1 << 20))
    launcher.close()


def test_killing_a_session_from_another_thread_unblocks_it(own):
    import threading

    with own.factory.open(SETTINGS) as session:
        session.load("class ModelNew:\n    def __call__(self):\n        while True: pass", [], {}, seed=0)
        threading.Timer(0.3, session.kill).start()
        start = time.monotonic()
        with pytest.raises(SessionError) as caught:
            session.call([])
        assert caught.value.kind == "infra_error" and time.monotonic() - start < 20


DAEMON = """
import os, time
if os.fork() == 0:
    os.setsid()
    time.sleep(100)
class ModelNew:
    def __call__(self): pass
"""
JUDGE = """
import sys, time
from drkernel.gym.session.factory import SessionFactory
from drkernel.gym.request import EvalSettings
factory = SessionFactory().warm()
session = factory.open(EvalSettings())
session.load(sys.argv[1], [], {}, seed=0)
print(factory._launcher.pid, *session.job.pids.values(), flush=True)
LAST
"""


@pytest.mark.parametrize(
    "last, end",
    [
        ("time.sleep(100)", signal.SIGKILL),
        pytest.param("sys.exit(0)", None, marks=pytest.mark.slow),
        pytest.param("time.sleep(100)", signal.SIGINT, marks=pytest.mark.slow),
        pytest.param("time.sleep(100)", signal.SIGTERM, marks=pytest.mark.slow),
        pytest.param("raise RuntimeError", None, marks=pytest.mark.slow),
    ],
)
def test_the_judges_end_is_everybodys_end(last, end):
    judge = subprocess.Popen(
        [PYTHON, "-c", JUDGE.replace("LAST", last), DAEMON],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    pids = [int(word) for word in judge.stdout.readline().split()]
    assert len(pids) == 3
    family = [p for pid in pids if psutil.pid_exists(pid) for p in [psutil.Process(pid)]]
    family += [child for p in family for child in p.children(recursive=True)]
    folders = {folder for folder in map(folder_of, family) if "drkernel-gym" in folder}
    if end is not None:
        judge.send_signal(end)
    judge.wait(60)
    assert until(lambda: not any(p.is_running() and p.status() != psutil.STATUS_ZOMBIE for p in family))
    assert until(lambda: not any(os.path.exists(os.path.dirname(folder)) for folder in folders))
    judge.stdout.close()


def folder_of(process: psutil.Process) -> str:
    try:
        return process.cwd()
    except psutil.Error:  # one that forks another and ends at once
        return ""


def test_the_environment_tells_nothing(cold):
    text = cold.says("raise OSError(repr(dict(os.environ)) + repr(sys.argv) + open('/proc/self/cmdline').read())")
    assert "PYTEST" not in text and str(Path.cwd()) not in text.replace(sys.prefix, "")
    collecting = cold.says("import gc\nraise OSError(f'collecting: {gc.isenabled()}')")
    assert "collecting: True" in collecting, "the zygote's collector rests during its imports alone"


def test_runner_and_device_do_not_share_an_address_layout(cold):
    def library_at(pid: int) -> str:
        with open(f"/proc/{pid}/maps") as maps:
            return next(line.split("-")[0] for line in maps if "libtorch_cpu" in line)

    with cold.factory.open(SETTINGS) as session:
        session.load(ECHO, [], {}, seed=0)
        children = psutil.Process(cold.factory._launcher.pid).children(recursive=True)
        nursery = cold.factory.health()["nursery_pid"]
        assert nursery in {process.pid for process in children}
        assert library_at(session.job.pids["device"]) == library_at(nursery)
        assert library_at(session.job.pids["device"]) != library_at(cold.factory._launcher.pid)


def test_processes_of_a_job_share_its_processor_time(own):
    """None of them is over the limit of one process, eight together are."""
    limits = RunnerLimits(memory_bytes=512 << 20, cpu_s=2)
    launcher = own.factory._alive()
    source = (
        "import os\nclass ModelNew:\n    def __call__(self, x):\n"
        "        [os.fork() for _ in range(3)]\n        while True: pass"
    )
    job = launcher.spawn(JobTerms("sim:h200", limits, 1 << 28))
    with SimulatedSession(launcher, SETTINGS, job) as session:
        session.load(source, [], {}, seed=0)
        handle, before = session.put(torch.zeros(1)), processor_seconds(launcher.pid)
        with pytest.raises(SessionError) as caught:
            session.call([handle])
        assert (caught.value.kind, caught.value.detail.type) == ("timeout", "Timeout")
        assert "processor time" in caught.value.detail.message
        session.kill()
        assert job.wait_until_gone(30)
    assert processor_seconds(launcher.pid) - before < 2 + 3  # of slack for what is used until the next look
    assert own.is_healthy()


def test_processes_that_come_and_go_are_counted(own):
    """Short ones, which their parent waits for, are known from it."""
    limits = RunnerLimits(memory_bytes=512 << 20, cpu_s=2)
    launcher = own.factory._alive()
    source = (
        "import os, time\nclass ModelNew:\n    def __call__(self, x):\n        while True:\n"
        "            if os.fork() == 0:\n                end = time.process_time() + 0.02\n"
        "                while time.process_time() < end: pass\n                os._exit(0)\n            os.wait()"
    )
    job = launcher.spawn(JobTerms("sim:h200", limits, 1 << 28))
    with SimulatedSession(launcher, SETTINGS, job) as session:
        session.load(source, [], {}, seed=0)
        handle = session.put(torch.zeros(1))
        with pytest.raises(SessionError) as caught:
            session.call([handle])
        assert "processor time" in caught.value.detail.message
    assert own.is_healthy()


def processor_seconds(zygote: int) -> float:
    """Of the zygote and every job that it has reaped."""
    return sum(psutil.Process(zygote).cpu_times()[:4])


KERNEL = f"""{HEAD}
import triton, triton.language as tl
@triton.jit
def double(x, out):
    at = tl.arange(0, 8)
    tl.store(out + at, tl.load(x + at) * 2)
class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        double[(1,)](x, out)
        return out
"""


def test_a_job_leaves_no_kernel_on_disk(own, tmp_path):
    """Not even where the judge's own process keeps kernels."""
    with kernels_on_disk(tmp_path / "kernels"):
        assert own.load_and_call(KERNEL, torch.ones(8)).outputs[0].value.tolist() == [2.0] * 8
        assert not list((tmp_path / "kernels").iterdir())


AS_A_DEVICE = """
import os, sys
from pathlib import Path
from drkernel.gym.runner import child, processes
from drkernel.gym.sandbox import layers
from drkernel.base.files import DiskCache
from drkernel.sim.host.triton_frontend import kernels_on_disk
from ttir_executor.kernel_cache import active
folder = Path(sys.argv[1])
kept = DiskCache(folder)

def main(on, missing):
    if "landlock" not in on:
        os._exit(77)
    assert active() is None
    with kernels_on_disk(folder):  # it may not even look at the folder
        assert active() is None
    kept.put(b"a device's", "key")
    try:
        (folder / "straight").write_bytes(b"")
    except OSError:
        os._exit(7)

surroundings = layers.prepare()
kept.put(b"a judge's", "key")
uid, in_use = surroundings.device_uid(0), processes.address_space(os.getpid())
how = layers.Confinement(layers.RunnerLimits(), None, uid, in_use, trusted=True)
pid = child.fork(main, [], None, how, surroundings)
code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
assert kept.get("key") == b"a judge's" and len(list(folder.iterdir())) == 1
sys.exit(code)
"""


def test_a_process_confined_as_a_device_cannot_write_kept_kernels(tmp_path):
    tmp_path.chmod(0o700)
    done = subprocess.run([PYTHON, "-c", AS_A_DEVICE, str(tmp_path)], capture_output=True, text=True)
    if done.returncode == 77:
        pytest.skip("this machine has no Landlock")
    assert done.returncode == 7, done.stderr
