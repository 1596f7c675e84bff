"""The judge's handle on a zygote: starts it, requests jobs, follows their state, and drains their output."""

import contextlib
import itertools
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from drkernel.digest import package_folder
from drkernel.gym.device import parse_device
from drkernel.gym.runner import child
from drkernel.gym.sandbox.layers import RunnerLimits
from drkernel.gym.sandbox.linux import remove_tree
from drkernel.sim.spec import card_data

START_SECONDS = 120.0
_BOOT = """
import json, os, sys
fd = int(sys.argv[1])
config = json.loads(os.read(int(sys.argv[-1]), 65536))
sys.path[:0] = config["paths"]
from drkernel.gym.runner.zygote import main
main(fd, config["folder"], config["without"])
"""
_LOG = "zygote.log"
_SPLICE = 1 << 20
_DRAIN_STEPS = 64
"""steps before the listening thread looks at other jobs again"""


class ZygoteError(RuntimeError):
    """The zygote could not be started, or died."""


@dataclass(frozen=True)
class JobTerms:
    """The terms that must be known before a job is forked."""

    device: str
    """as in settings: 'sim:h200', 'cuda:0'; 'cpu' serves tests"""
    limits: RunnerLimits
    device_memory_bytes: int
    visible: Mapping[str, str] = field(default_factory=dict)
    """of a real GPU, the variables that make it the only one that the runner sees"""


@dataclass(eq=False)
class JobHandle:
    """One job as the judge holds it: sockets to its runner and device, and what is known of its end."""

    id: int
    terms: JobTerms
    result: socket.socket
    control: socket.socket | None
    """socket to the device, when that is a process of its own"""
    output: int
    """read end of the runner's stdout and stderr"""
    output_limit: int = 64 << 10
    """bytes of output kept"""
    text: bytearray = field(default_factory=bytearray)
    dropped: int = 0
    """bytes of output beyond the limit"""
    exits: dict[str, dict[str, Any]] = field(default_factory=dict)
    """'runner' or 'device' -> the event of its end"""
    pids: dict[str, int] = field(default_factory=dict)
    failure: str | None = None
    changed: threading.Condition = field(default_factory=threading.Condition)
    gone: bool = False
    """set when everything is killed, reaped and removed"""

    def wait_for_exit(self, seconds: float) -> dict[str, dict[str, Any]]:
        """The events of ended processes, at least one of them when it comes in time."""
        with self.changed:
            self.changed.wait_for(lambda: self.exits or self.gone, seconds)
            return dict(self.exits)

    @property
    def usable(self) -> bool:
        """Whether no process of the job is known to have ended."""
        return not (self.exits or self.gone or self.failure)

    def wait_until_gone(self, seconds: float) -> bool:
        """Whether no process of the job is left."""
        with self.changed:
            return self.changed.wait_for(lambda: self.gone, seconds)


class ForkedJudge:
    """A judge of a zygote, as the owner of both has it: its pid and its end. Thread-safe."""

    def __init__(self, kill: Callable[[], None]):
        self.kill = kill
        """ends it, if it has not ended"""
        self.pid = 0
        """0 until it is known"""
        self.forked: Future[int] = Future()
        self.ended: Future[int] = Future()

    def poll(self) -> int | None:
        """Its exit code, negative for a signal, once it has ended."""
        return self.ended.result() if self.ended.done() else None

    def wait(self) -> int:
        """Wait for its end; returns the exit code."""
        return self.ended.result()


class Launcher:
    """One zygote and its jobs. Thread-safe.

    It starts the zygote, without the layers ``without``, unless it is given a socket to one that another launcher has
    started: ``joined`` is what that one's :meth:`join` gave, ``pid`` its :attr:`pid`.
    """

    def __init__(
        self, *, without: frozenset[str] = frozenset(), joined: socket.socket | None = None, pid: int | None = None
    ):
        self._jobs: dict[int, JobHandle] = {}
        self._judges: dict[int, ForkedJudge] = {}
        self._ids = itertools.count(1)
        self._lock = threading.Lock()
        self._ready = threading.Event()
        self._dead = threading.Event()
        self.missing: dict[str, str] = {}
        self.nursery = 0
        """pid of the process that devices are forked from; known when the zygote is ready"""
        self._process: subprocess.Popen[bytes] | None = None
        self._folder, self.pid = "", pid
        self._control = self._start(without) if joined is None else joined
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._control, selectors.EVENT_READ)
        self._wake, wake = socket.socketpair()
        self._selector.register(wake, selectors.EVENT_READ)
        self._woken = wake
        self._null = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
        self._thread = threading.Thread(target=self._listen, name="drkernel-zygote", daemon=True)
        self._thread.start()

    def _start(self, without: frozenset[str]) -> socket.socket:
        """Start the zygote; returns the socket to it."""
        self._folder = tempfile.mkdtemp(prefix="drkernel-gym-")
        os.chmod(self._folder, 0o711)
        control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs, Path(self._folder, _LOG).open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-c", _BOOT, str(theirs.fileno())],
                pass_fds=[theirs.fileno()], env=clean_environment(), cwd="/", start_new_session=True,
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=log,
            )  # fmt: skip
        self.pid = self._process.pid
        config = {"paths": import_paths(), "folder": self._folder, "without": sorted(without)}
        control.send(json.dumps(config).encode())  # not as arguments: those can be read in /proc
        return control

    def join(self) -> socket.socket:
        """A socket over which another process's launcher may use this zygote. Raises :class:`ZygoteError`."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            try:
                self._send({"do": "join"}, [theirs.fileno()])
            except ZygoteError:
                ours.close()
                raise
        return ours

    def fork_judge(self, entry: str, fds: list[int]) -> ForkedJudge:
        """A judge that runs ``serve`` of the module ``entry`` with ``fds``: its pipe, its socket to this zygote, its
        standard error. Raises :class:`ZygoteError`."""
        self.wait_ready()
        number = next(self._ids)
        judge = self._judges[number] = ForkedJudge(lambda: self._end({"do": "kill", "job": number}))
        self._send({"do": "judge", "job": number, "entry": entry}, fds)
        judge.pid = judge.forked.result(START_SECONDS)
        return judge

    def _send(self, message: dict[str, Any], fds: Sequence[int] = ()) -> None:
        try:
            socket.send_fds(self._control, [json.dumps(message).encode()], fds)
        except OSError as error:
            self._dead.set()  # the thread that listens hears of it later
            raise ZygoteError(f"the zygote is gone: {error}\n{self.log()}") from error

    def _end(self, message: dict[str, Any]) -> None:
        """Have something ended; it has, where the zygote is gone."""
        with contextlib.suppress(ZygoteError):
            self._send(message)

    @property
    def own(self) -> set[int]:
        """The zygote's children that are no jobs: the nursery and the judges."""
        return {self.nursery, *(judge.pid for judge in list(self._judges.values()))}

    def end_over_memory(self, pid: int) -> None:
        """End the runner or device ``pid`` of any judge's job as one that takes too much memory."""
        self._end({"do": "over", "pid": pid})

    @property
    def alive(self) -> bool:
        """Whether jobs can be requested."""
        return not self._dead.is_set()

    @property
    def jobs(self) -> int:
        """Number of jobs with processes left."""
        return len(self._jobs)

    def wait_ready(self) -> None:
        """Wait until the zygote has imported everything. Raises :class:`ZygoteError` with its log when it could not."""
        deadline = time.monotonic() + START_SECONDS
        while not self._ready.wait(0.05):
            if self._dead.is_set() or time.monotonic() > deadline:
                slow = f"was not ready after {START_SECONDS:.0f} s: is the machine busy?"
                how = "ended before it was ready:" if self._dead.is_set() else slow
                raise ZygoteError(f"the zygote {how}\n{self.log()}".rstrip())

    def log(self) -> str:
        """The end of the zygote's standard error."""
        try:
            return Path(self._folder, _LOG).read_text(errors="replace")[-4000:]
        except OSError:
            return "(no log)"

    def spawn(self, terms: JobTerms) -> JobHandle:
        """Request a job. Raises :class:`ZygoteError` when the zygote is dead."""
        self.wait_ready()
        result, runner_result = socket.socketpair()
        output, runner_output = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(output, False)  # before anything can fail: a job that never was is drained, too
        control, theirs = None, [runner_result]
        if parse_device(terms.device).simulated:
            host_runner, host_device = socket.socketpair()
            control, device_control = socket.socketpair()
            theirs += [host_runner, host_device, device_control]
        job = JobHandle(next(self._ids), terms, result, control, output)
        message = {
            "do": "spawn", "job": job.id, "device": terms.device, "card": card_data(terms.device.removeprefix("sim:")),
            "limits": vars(terms.limits), "device_memory_bytes": terms.device_memory_bytes,
            "visible": dict(terms.visible),
        }  # fmt: skip
        fds = [runner_result.fileno(), runner_output, *(sock.fileno() for sock in theirs[1:])]
        try:
            with self._lock:
                self._jobs[job.id] = job
                self._send(message, fds)
        except ZygoteError:
            self._forget(job)
            for sock in (result, control):
                if sock is not None:
                    sock.close()
            raise
        finally:
            for sock in theirs:
                sock.close()
            os.close(runner_output)
        with contextlib.suppress(OSError, ValueError):  # the thread has ended: the job is gone already
            self._selector.register(output, selectors.EVENT_READ, job)
            self._wake.send(b"x")
        return job

    def kill(self, job: JobHandle) -> None:
        """End a job: its processes are killed and reaped, its scratch removed. Returns at once; see ``job.gone``."""
        job.result.close()
        if job.control is not None:
            job.control.close()
        self._end({"do": "kill", "job": job.id})

    def close(self) -> None:
        """End every job of this launcher, and the zygote if this launcher started it."""
        with contextlib.suppress(OSError):
            self._control.shutdown(socket.SHUT_WR)
        if self._process is None:
            self._thread.join(10)
            return
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._thread.join(10)
        remove_tree(self._folder)

    # ---- the thread that listens

    def _listen(self) -> None:
        try:
            while True:
                for key, _ in self._selector.select():
                    if key.fileobj is self._control:
                        data = self._control.recv(64 << 10)
                        if not data:
                            return
                        self._event(json.loads(data))
                    elif key.fileobj is self._woken:
                        self._woken.recv(4096)
                    else:
                        self.drain(key.data)
        except OSError:
            return
        finally:
            self._dead.set()
            self._control.close()
            for job in list(self._jobs.values()):
                self._forget(job)
            for number in list(self._judges):
                self._judge_event({"event": "exited", "job": number, "status": signal.SIGKILL})
            self._selector.close()
            os.close(self._null)
            self._wake.close()
            self._woken.close()

    def _event(self, message: dict[str, Any]) -> None:
        if message["event"] == "ready":
            self.missing = message["missing"]
            self.nursery, self._folder = message["nursery"], message["folder"]
            self._ready.set()
            return
        if message["job"] in self._judges:
            self._judge_event(message)
        job = self._jobs.get(message["job"])
        if job is None:
            return
        with job.changed:
            if message["event"] == "exited":
                job.exits[message["who"]] = message
            elif message["event"] == "spawned":
                job.pids = {"runner": message["runner"], "device": message["device"]}
            elif message["event"] == "failed":
                job.failure = message["detail"]
            job.changed.notify_all()
        if message["event"] == "gone":
            self._forget(job)

    def _judge_event(self, message: dict[str, Any]) -> None:
        judge = self._judges[message["job"]]
        if message["event"] == "spawned":
            judge.forked.set_result(message["judge"])
            return
        del self._judges[message["job"]]
        if not judge.forked.done():
            judge.forked.set_exception(ZygoteError(message.get("detail", "the zygote is gone") + "\n" + self.log()))
        judge.ended.set_result(os.waitstatus_to_exitcode(message.get("status", 1 << 8)))

    def _forget(self, job: JobHandle) -> None:
        self._jobs.pop(job.id, None)
        self.drain(job)
        with job.changed:
            if job.output >= 0:
                with contextlib.suppress(KeyError, ValueError):
                    self._selector.unregister(job.output)
                os.close(job.output)
                job.output = -1
            job.gone = True
            job.changed.notify_all()

    def drain(self, job: JobHandle) -> None:
        """Read what the runner has printed so far; output over the limit is discarded."""
        with job.changed:
            for _ in range(_DRAIN_STEPS):
                if job.output < 0 or not (count := self._take(job)):
                    return
                if count < 0:  # the last writer is gone
                    with contextlib.suppress(KeyError, ValueError):
                        self._selector.unregister(job.output)
                    os.close(job.output)
                    job.output = -1

    def _take(self, job: JobHandle) -> int:
        """Bytes taken in one step; 0 when there are none now, -1 at the end."""
        room = job.output_limit - len(job.text)
        try:
            if room > 0:
                data = os.read(job.output, min(room, 64 << 10))
                job.text += data
                return len(data) or -1
            count = os.splice(job.output, self._null, _SPLICE)
        except BlockingIOError:
            return 0
        except OSError:  # whatever stands in the pipe of one job, the others are listened to
            return -1
        job.dropped += count
        return count or -1


def clean_environment() -> dict[str, str]:
    """The environment of the zygote: of the judge's own only the search path and :data:`child.PASSED`; one thread
    everywhere, so that forking is safe."""
    passed = {name: os.environ[name] for name in child.PASSED if name in os.environ}
    threads = {f"{name}_NUM_THREADS": "1" for name in ("OMP", "OPENBLAS", "MKL", "NUMEXPR")}
    return {"PATH": os.environ.get("PATH", os.defpath), "LANG": "C.UTF-8", "HOME": "/", **passed, **threads}


def import_paths() -> list[str]:
    """The folders of drkernel and its executor, for an interpreter that ignores PYTHONPATH."""
    found = (Path(__file__).resolve().parents[3], package_folder("ttir_executor").resolve().parent)
    return list(dict.fromkeys(map(str, found)))
