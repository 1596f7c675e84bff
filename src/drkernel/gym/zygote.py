"""The zygote: a warm process (torch, triton and the simulator imported) that forks the processes of a job.

It runs no candidate code and has one thread. The judge speaks to it over one socket, one JSON object a packet; a job's
own sockets are made by the judge and only passed through here. A job is two processes: the *runner* (untrusted) and the
*device* (the judge's side), which share nothing but one socket.

Commands: ``spawn`` (with five descriptors), ``kill``. Events: ``ready``, ``spawned``, ``exited``, ``gone``, ``failed``.
"""

from __future__ import annotations

import fcntl
import gc
import json
import os
import resource
import selectors
import shutil
import signal
import socket
import sys
import traceback
from dataclasses import dataclass, field
from typing import Any

from drkernel.gym import linux, sandbox
from drkernel.sim.spec import get_spec

WATCH_SECONDS = 0.02
"""how often memory is looked at"""
MAX_PACKET = 64 << 10
_PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass
class Job:
    """The processes of one evaluation."""

    id: int
    limits: sandbox.RunnerLimits
    scratch: str
    uid: int | None
    runner: int = 0
    device: int = 0
    exited: dict[int, int] = field(default_factory=dict)
    """pid -> wait status"""
    over_memory: bool = False

    @property
    def living(self) -> list[int]:
        """Processes not yet reaped."""
        return [pid for pid in (self.runner, self.device) if pid and pid not in self.exited]


class Zygote:
    """The event loop."""

    def __init__(self, control: socket.socket, folder: str, surroundings: sandbox.Surroundings):
        self.control = control
        self.folder = folder
        self.surroundings = surroundings
        self.jobs: dict[int, Job] = {}
        self.parent = os.getppid()
        self.baseline = 0
        self.free_uids = list(range(64))

    def serve(self) -> None:
        """Until the judge is gone."""
        wake, wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        selector = selectors.DefaultSelector()
        selector.register(self.control, selectors.EVENT_READ)
        selector.register(wake, selectors.EVENT_READ)
        self.baseline = _private_bytes(os.getpid())
        self._tell({"event": "ready", "pid": os.getpid(), "missing": self.surroundings.missing})
        try:
            while os.getppid() == self.parent:
                for key, _ in selector.select(WATCH_SECONDS if self.jobs else 0.5):
                    if key.fileobj == wake:
                        os.read(wake, 4096)
                    elif not self._command():
                        return
                self._reap()
                self._watch_memory()
        finally:
            for job in list(self.jobs.values()):
                self._end(job)
            shutil.rmtree(self.folder, ignore_errors=True)

    def _tell(self, event: dict[str, Any]) -> None:
        try:
            self.control.send(json.dumps(event).encode())
        except OSError:
            return  # the judge is gone; the loop sees it next

    def _command(self) -> bool:
        try:
            data, fds, _, _ = socket.recv_fds(self.control, MAX_PACKET, 16)
        except ConnectionResetError:
            return False
        if not data:
            return False
        message = json.loads(data)
        if message["do"] == "spawn":
            try:
                self._spawn(message, fds)
            except OSError as error:
                self._tell({"event": "failed", "job": message["job"], "detail": str(error)})
                if message["job"] in self.jobs:
                    self._end(self.jobs[message["job"]])
            finally:
                for fd in fds:
                    os.close(fd)
        elif message["do"] == "kill" and message["job"] in self.jobs:
            self._end(self.jobs[message["job"]])
        return True

    # ---- starting

    def _spawn(self, message: dict[str, Any], fds: list[int]) -> None:
        result, host_runner, output, host_device, control = fds
        get_spec(message["gpu"])  # read here, once: the runner may not read this package's files
        limits = sandbox.RunnerLimits.model_validate(message["limits"])
        scratch = os.path.join(self.folder, f"job-{message['job']}")
        uid = None
        if self.surroundings.first_uid is not None:
            uid = self.surroundings.first_uid + self.free_uids.pop(0)
        job = self.jobs[message["job"]] = Job(message["job"], limits, scratch, uid)
        self._make_scratch(job)
        in_use = _address_space(os.getpid())
        device_limits = limits.model_copy(update={"memory_bytes": message["device_memory_bytes"], "allow_exec": False})
        job.device = self._fork(
            [host_device, control], None, sandbox.Confinement(device_limits, None, uid, in_use),
            lambda report: _be_device(message, limits),
        )  # fmt: skip
        how = sandbox.Confinement(limits, scratch, uid, in_use)
        if self.surroundings.pid_namespace:
            with sandbox.child_in_new_pid_namespace():
                job.runner = self._fork(
                    [result, host_runner], output, how, lambda report: _be_runner(message, how, report)
                )
        else:
            job.runner = self._fork([result, host_runner], output, how, lambda report: _be_runner(message, how, report))
        self._tell({"event": "spawned", "job": job.id, "runner": job.runner, "device": job.device})

    def _make_scratch(self, job: Job) -> None:
        os.mkdir(job.scratch, 0o700)
        if self.surroundings.mount_namespace:
            flags = linux.MS_NOSUID | linux.MS_NODEV | (0 if job.limits.allow_exec else linux.MS_NOEXEC)
            linux.mount("scratch", job.scratch, "tmpfs", flags, f"size={job.limits.file_bytes},mode=0700")
        if job.uid is not None:
            os.chown(job.scratch, job.uid, job.uid)

    def _fork(self, fds: list[int], output: int | None, how: sandbox.Confinement, main: Any) -> int:
        """A child with ``fds`` as 3, 4, ..., output on 1 and 2, confined, running ``main``; returns its pid."""
        pid = os.fork()
        if pid:
            return pid
        status = 70
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            os.setsid()
            if how.scratch:
                _enter(how.scratch)
            main(sandbox.confine(how, self.surroundings, lambda: _arrange(fds, output)))
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)

    # ---- watching and ending

    def _reap(self) -> None:
        owners = {pid: job for job in self.jobs.values() for pid in job.living}
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            job = owners.get(pid)
            if job is not None:
                job.exited[pid] = status
                who = "runner" if pid == job.runner else "device"
                self._tell(
                    {"event": "exited", "job": job.id, "who": who, "status": status, "over_memory": job.over_memory}
                )

    def _watch_memory(self) -> None:
        for job in self.jobs.values():
            for pid in job.living:
                if _private_bytes(pid) - self.baseline > job.limits.memory_bytes:
                    job.over_memory = True
                    os.kill(pid, signal.SIGKILL)

    def _end(self, job: Job) -> None:
        """Kill everything the job has started, reap it, remove its scratch."""
        for pid in job.living:
            _kill(pid)
        for pid in job.living:
            job.exited[pid] = os.waitpid(pid, 0)[1]
        if self.surroundings.mount_namespace:
            linux.umount(job.scratch)
        shutil.rmtree(job.scratch, ignore_errors=True)
        if job.uid is not None and self.surroundings.first_uid is not None:
            self.free_uids.append(job.uid - self.surroundings.first_uid)
        del self.jobs[job.id]
        self._tell({"event": "gone", "job": job.id})


def _kill(pid: int) -> None:
    for send in (os.killpg, os.kill):
        try:
            send(pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            continue


# ---- in the children


def _arrange(fds: list[int], output: int | None) -> None:
    """Standard streams, the job's descriptors from 3 up, nothing else."""
    first = 3 + len(fds)
    null = os.open("/dev/null", os.O_RDWR)
    out, *own = [fcntl.fcntl(fd, fcntl.F_DUPFD, first) for fd in (null if output is None else output, *fds)]
    os.dup2(null, 0)
    os.dup2(out, 1)
    if output is not None:  # the device's errors go to the zygote's log
        os.dup2(out, 2)
    for index, fd in enumerate(own):
        os.dup2(fd, 3 + index, inheritable=False)
    linux.close_from(first)


def _enter(scratch: str) -> None:
    """Make ``scratch`` home, working folder and every cache, in an environment that tells nothing."""
    path = os.environ.get("PATH", "/usr/bin:/bin")
    os.environ.clear()
    os.environ.update(
        PATH=path, HOME=scratch, TMPDIR=scratch, LANG="C.UTF-8", OMP_NUM_THREADS="1",
        TRITON_CACHE_DIR=os.path.join(scratch, "triton"), XDG_CACHE_HOME=os.path.join(scratch, "cache"),
        TORCH_EXTENSIONS_DIR=os.path.join(scratch, "extensions"),
        TORCHINDUCTOR_CACHE_DIR=os.path.join(scratch, "inductor"),
    )  # fmt: skip
    os.chdir(scratch)


def _be_device(message: dict[str, Any], limits: sandbox.RunnerLimits) -> None:
    from drkernel.sim.isolated import serve_device

    host, control = socket.socket(fileno=3), socket.socket(fileno=4)
    serve_device(message["gpu"], host, control, memory_bytes=message["device_memory_bytes"])


def _be_runner(message: dict[str, Any], how: sandbox.Confinement, report: tuple[list[str], dict[str, str]]) -> None:
    from drkernel.gym.runner import Runner
    from drkernel.sim.isolated import connect_host
    from drkernel.sim.wire import send

    sys.path[:] = [entry for entry in sys.path if "site-packages" in entry or entry.startswith(sys.base_prefix)]
    channel, host = socket.socket(fileno=3), socket.socket(fileno=4)
    send(channel, {"layers": report[0], "missing": report[1]})
    assert how.scratch is not None
    with connect_host(message["gpu"], host) as link:
        Runner(channel, link, how.scratch).serve()


# ---- what a process uses


def _private_bytes(pid: int) -> int:
    """Memory of a process that it does not share with files, in bytes; 0 when it is gone."""
    try:
        with open(f"/proc/{pid}/statm") as file:
            fields = file.read().split()
    except OSError:
        return 0
    return (int(fields[1]) - int(fields[2])) * _PAGE


def _address_space(pid: int) -> int:
    with open(f"/proc/{pid}/statm") as file:
        return int(file.read().split()[0]) * _PAGE


# ---- starting


def _warm_up() -> None:
    """Import and first-use what every job needs, in the one thread there is."""
    import torch

    torch.set_num_threads(1)
    import drkernel.gym.runner
    import drkernel.sim.isolated  # noqa: F401
    from drkernel.gym.rehearsal import rehearse

    rehearse()
    gc.collect()
    gc.freeze()


def main(control_fd: int, folder: str, without: list[str]) -> None:
    """The zygote's life; its process is started by :class:`drkernel.gym.launcher.Launcher`."""
    for name in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(name, signal.SIG_IGN)  # a Ctrl-C in the terminal is the judge's to handle
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    control = socket.socket(fileno=control_fd)
    surroundings = sandbox.prepare(frozenset(without))
    _warm_up()
    if len(os.listdir("/proc/self/task")) != 1:
        raise RuntimeError("importing started a thread; forking would not be safe")
    Zygote(control, folder, surroundings).serve()
