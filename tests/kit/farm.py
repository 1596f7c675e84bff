"""Warm processes for a whole test run: commands, judges and zygotes that need not import torch and Triton again.

The root ``conftest.py`` starts one farm; every worker of pytest-xdist uses it. It offers three things:

- :data:`PYTHON`, a stand-in for ``sys.executable``: ``subprocess.run([PYTHON, "-m", "drkernel", ...])`` is carried out
  by a fork of a process that has imported everything already, with the caller's arguments, environment, folder and
  descriptors. ``-m``, ``-c`` and scripts are understood; anything else is left to the real interpreter.
- judges: the processes of a ``LocalPool`` are forks as well, one each as ever (:class:`FarmJudge`).
- zygotes: pools join one zygote (:class:`FarmZygote`) instead of having one each; those that have their own, with
  ``pytest.mark.own_zygote``, and session factories, fork it from a process that has warmed up.

Tests about starting want the real thing: ``sys.executable``, and ``use_in_factories(cold=True)``.
"""

import contextlib
import json
import os
import select
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import warnings
import zlib
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn, cast

FOLDER = "DRKERNEL_TEST_FARM"
"""the environment variable that names the farm's folder"""
PYTHON = str(Path(os.environ[FOLDER], "python")) if FOLDER in os.environ else sys.executable
_folder: str | None = None
"""the farm's folder, in its own forks, whose environment may not name it"""
_SOCKETS = ("socket", "zygotes")
"""where the farm is called, and where a process that has what a zygote has, and no more"""
START_S = 120.0
_MESSAGE = 1 << 20
_SHIM = """#!{python} -IS
# Passes this process's arguments, environment, folder and descriptors to the farm, and ends as the fork there ends.
import array, json, os, signal, socket, sys
farm = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
fds = sorted(int(name) for name in os.listdir("/proc/self/fd"))
fds = [fd for fd in fds if fd != farm.fileno() and os.path.exists(f"/proc/self/fd/{{fd}}") and os.get_inheritable(fd)]
farm.connect({socket!r})
farm.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
ignored = [n for n in range(1, 32) if signal.getsignal(n) == signal.SIG_IGN and n != signal.SIGPIPE]
request = dict(do="run", argv=sys.argv[1:], env=dict(os.environ), cwd=os.getcwd(), fds=fds, ignored=ignored)
farm.sendmsg([json.dumps(request).encode()], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))])
for fd in fds:
    os.close(fd)
pid = json.loads(farm.recv(1 << 16))["pid"]
for number in {{signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1}} - set(ignored):
    signal.signal(number, lambda number, frame: os.kill(pid, number))
told = farm.recv(1 << 16)
if not told:
    os.kill(os.getpid(), signal.SIGKILL)
code = json.loads(told)["code"]
if code < 0:
    signal.signal(-code, signal.SIG_DFL) if -code not in (signal.SIGKILL, signal.SIGSTOP) else None
    os.kill(os.getpid(), -code)
    signal.pause()
os._exit(code)
"""


# ---- the users' side


class Farm:
    """The farm as its owner holds it: a socket that children find by the environment, and, once somebody has called
    there, the process."""

    def __init__(self) -> None:
        self.folder = tempfile.mkdtemp(prefix="drkernel-farm-")
        os.chmod(self.folder, 0o711)
        Path(self.folder, "spent").mkdir()
        shim = Path(self.folder, "python")
        shim.write_text(_SHIM.format(python=sys.executable, socket=f"{self.folder}/socket"))
        shim.chmod(0o755)
        self._listeners = [socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in _SOCKETS]
        for listener, name in zip(self._listeners, _SOCKETS, strict=True):
            listener.bind(f"{self.folder}/{name}")
            listener.listen(128)
        self._process: subprocess.Popen[bytes] | None = None
        os.environ[FOLDER] = self.folder
        global PYTHON  # this process has imported this module before there was a farm
        PYTHON = str(shim)
        self._stop, woken = socket.socketpair()
        self._thread = threading.Thread(target=self._start_when_called, args=(woken,), daemon=True)
        self._thread.start()

    def _start_when_called(self, woken: socket.socket) -> None:
        ready, _, _ = select.select([*self._listeners, woken], [], [])
        if woken in ready:
            return
        env = {**os.environ, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}
        fds = [listener.fileno() for listener in self._listeners]
        with Path(self.folder, "log").open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, __file__, *map(str, fds), str(os.getpid())],
                pass_fds=fds, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        for listener in self._listeners:
            listener.close()  # a farm that has ended refuses callers, and keeps none waiting

    def close(self) -> None:
        """End everything that was forked."""
        with contextlib.suppress(OSError):  # it has long been called
            self._stop.send(b"x")
        self._thread.join(10)
        for listener in self._listeners:
            listener.close()
        if self._process is not None:
            self._process.terminate()
            self._process.wait(30)
        del os.environ[FOLDER]
        shutil.rmtree(self.folder, ignore_errors=True)


def spent() -> float:
    """Processor seconds of the commands that this test has started and that have ended."""
    file = _spent_by(os.environ)
    return sum(map(float, file.read_text().split())) if file is not None and file.exists() else 0.0


def _spent_by(env: Mapping[str, str]) -> Path | None:
    """Where the seconds of a test's commands are noted; a command without the test's environment is nobody's."""
    if "PYTEST_CURRENT_TEST" not in env or FOLDER not in os.environ:
        return None
    test = env["PYTEST_CURRENT_TEST"].rpartition(" ")[0]  # without its phase
    return Path(os.environ[FOLDER], "spent", f"{zlib.crc32(test.encode()):08x}")


def _ask(
    request: dict[str, Any], fds: list[int], at: str = _SOCKETS[0]
) -> tuple[socket.socket, dict[str, Any], list[int]]:
    farm = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    farm.settimeout(START_S)
    folder = _folder or os.environ[FOLDER]
    farm.connect(f"{folder}/{at}")
    socket.send_fds(farm, [json.dumps(request).encode()], fds)
    data: bytes = b""
    with contextlib.suppress(ConnectionResetError):
        data, received, _, _ = socket.recv_fds(farm, 1 << 16, 4)
    if not data:
        log = Path(folder, "log").read_text(errors="replace")[-2000:]
        raise RuntimeError(f"the farm has ended\n{log}")
    return farm, json.loads(data), received


class ForkedProcess:
    """A process that the farm has forked, with what of ``subprocess.Popen`` its owner uses."""

    def __init__(self, request: dict[str, Any], fds: list[int], at: str = _SOCKETS[0]):
        self._farm, told, _ = _ask(request, fds, at)
        self.pid: int = told["pid"]
        self.parent: int = told["parent"]
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """The exit code, once it has ended."""
        return self._wait(0.0)

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end; returns the exit code."""
        code = self._wait(timeout)
        if code is None:
            raise subprocess.TimeoutExpired("a fork of the farm", timeout or 0.0)
        return code

    def kill(self) -> None:
        """Send SIGKILL, unless it has ended."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):  # the farm has buried it, and its word is on the way
                os.kill(self.pid, signal.SIGKILL)

    def _wait(self, seconds: float | None) -> int | None:
        if self.returncode is None:
            self._farm.settimeout(seconds)
            try:
                data = self._farm.recv(1 << 16)
            except (BlockingIOError, TimeoutError):
                return None
            self.returncode = json.loads(data)["code"] if data else -signal.SIGKILL
            self._farm.close()
        return self.returncode


def launcher() -> Any:
    """A launcher on the farm's zygote, for a session factory."""
    from drkernel.gym.runner.launcher import Launcher

    joined, pid = _join_zygote()
    return Launcher(joined=joined, pid=pid)


def _join_zygote() -> tuple[socket.socket, int]:
    """A socket to the farm's zygote, and its process id."""
    farm, told, (fd,) = _ask({"do": "join"}, [])
    farm.close()
    return socket.socket(fileno=fd), told["pid"]


def use_in_factories(cold: bool = False) -> None:
    """Have zygotes of this process's own forked, or else started."""
    from drkernel.gym.pools import judge_process
    from drkernel.gym.runner import launcher
    from drkernel.gym.session import factory

    for module in (factory, judge_process):
        vars(module).update(Launcher=launcher.Launcher if cold else launcher_class())


@cache
def launcher_class(card: bool = False) -> type:
    """Of launchers whose zygotes are forks; ``card``: with the card of ``simulated_card.py``."""
    from drkernel.gym.runner.launcher import _LOG, Launcher, clean_environment

    class WarmLauncher(Launcher):
        """A launcher with a zygote of its own, forked from a process that has warmed up."""

        def _start(self, without: frozenset[str]) -> socket.socket:
            self._folder = tempfile.mkdtemp(prefix="drkernel-gym-")
            os.chmod(self._folder, 0o711)
            control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            request = {"do": "zygote", "folder": self._folder, "without": sorted(without), "card": card}
            with theirs, Path(self._folder, _LOG).open("ab") as log:
                fds = [theirs.fileno(), log.fileno()]
                process = ForkedProcess(request | {"env": clean_environment()}, fds, _SOCKETS[1])
            self._process, self.pid = cast("subprocess.Popen[bytes]", process), process.pid
            return control

    return WarmLauncher


def use_in_pools(own_zygote: bool = False) -> None:
    """Have the pools of this process use the farm's zygote and judges, unless they are to have their own."""
    from drkernel.gym.pools import judge_process, local

    own = (judge_process.SharedZygote, judge_process.JudgeProcess)
    zygote, judge = own if own_zygote else _farm_classes()
    vars(local).update(SharedZygote=zygote, JudgeProcess=judge)


@cache
def _farm_classes() -> tuple[type, type]:
    from drkernel.gym.pools.judge_process import JudgeProcess, SharedZygote

    class FarmZygote(SharedZygote):
        """The farm's zygote, which all pools of a test run share."""

        def join(self) -> tuple[socket.socket, Any]:
            self.started = 1
            joined, pid = _join_zygote()
            return joined, SimpleNamespace(pid=pid)

    class FarmJudge(JudgeProcess):
        """A judge forked from a process that has imported everything."""

        def _fork(self, launcher: Any, fds: list[int]) -> Any:
            return ForkedProcess({"do": "judge", "env": dict(os.environ)}, fds)

    return FarmZygote, FarmJudge


# ---- the farm's side


class _Farm:
    """Forks on request, in its only thread; each connection is one process, which ends with it."""

    def __init__(self, listener: socket.socket, owner: int, zygotes: socket.socket):
        self.listener, self.owner, self.zygotes = listener, owner, zygotes
        self.connections: dict[int, socket.socket] = {}
        """of processes that run, by pid"""
        self.spent_by: dict[int, Path] = {}
        """where a command's seconds are noted, by pid"""
        self.selector = selectors.DefaultSelector()
        self.selector.register(listener, selectors.EVENT_READ)
        self.ending = False

    def serve(self) -> Callable[[], Any] | None:
        """Serve until the owner is gone; in a fork, return what the fork is to do."""
        wake, wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, lambda *_: setattr(self, "ending", True))
        self.selector.register(wake, selectors.EVENT_READ)
        while os.getppid() == self.owner and not self.ending:
            for key, _ in self.selector.select(0.5):
                if key.fileobj is self.listener:
                    task = self._accept()
                    if task is not None:
                        return task
                elif key.fileobj == wake:
                    os.read(wake, 4096)
                else:
                    self._kill(key.data)  # nothing is ever sent: its user has closed the connection
            self._reap()
        for pid in list(self.connections):
            self._kill(pid)
        return None

    def _accept(self) -> Callable[[], Any] | None:
        connection, _ = self.listener.accept()
        data, fds, _, _ = socket.recv_fds(connection, _MESSAGE, 64)
        if not data:
            connection.close()
            return None
        request = json.loads(data)
        if request["do"] == "join":
            self._join(connection)
            return None
        pid = os.fork()
        if pid == 0:
            self._leave(connection)
            return lambda: _TASKS[request["do"]](request, fds)
        for fd in fds:
            os.close(fd)
        self.connections[pid] = connection
        note = _spent_by(request["env"]) if request["do"] == "run" else None  # a judge is many tests'
        if note is not None:
            self.spent_by[pid] = note
        self.selector.register(connection, selectors.EVENT_READ, pid)
        connection.send(json.dumps({"pid": pid, "parent": os.getpid()}).encode())
        return None

    def _join(self, connection: socket.socket) -> None:
        """Have the keeper of the zygote send a socket to it."""
        with connection:
            socket.send_fds(self.zygotes, [b"join"], [connection.fileno()])

    def _leave(self, connection: socket.socket) -> None:
        """In a fork: let go of everything that is the farm's."""
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGCHLD, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        for other in (self.listener, self.zygotes, connection, *self.connections.values()):
            other.close()
        self.selector.close()
        os.setsid()

    def _kill(self, pid: int) -> None:
        connection = self.connections.pop(pid, None)
        if connection is not None:
            self.selector.unregister(connection)
            connection.close()
            for target in (os.killpg, os.kill):
                try:
                    target(pid, signal.SIGKILL)
                except (ProcessLookupError, PermissionError):
                    continue

    def _reap(self) -> None:
        while True:
            try:
                pid, status, used = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid in self.spent_by:
                with self.spent_by.pop(pid).open("a") as file:
                    file.write(f"{used.ru_utime + used.ru_stime}\n")
            connection = self.connections.pop(pid, None)
            if connection is not None:
                self.selector.unregister(connection)
                with connection:
                    try:
                        connection.send(json.dumps({"code": os.waitstatus_to_exitcode(status)}).encode())
                    except OSError:
                        continue  # nobody waits for it


def _run(request: dict[str, Any], fds: list[int]) -> None:
    """In a fork: what an interpreter does with these arguments."""
    _take_descriptors(request["fds"], fds)
    os.chdir(request["cwd"])
    for number in request["ignored"]:
        signal.signal(number, signal.SIG_IGN)
    os.environ.clear()
    os.environ.update(request["env"])
    argv = [*request["argv"]]
    while argv and argv[0] in ("-P", "-u", "-W"):
        if argv.pop(0) == "-W":
            warnings.simplefilter(argv.pop(0))  # type: ignore[arg-type]
    if not argv or (argv[0].startswith("-") and argv[0] not in ("-m", "-c")):
        os.execv(sys.executable, [sys.executable, *request["argv"]])
    _look_fresh()
    paths = [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
    first = str(Path(argv[0]).resolve().parent) if argv[0] not in ("-m", "-c") else os.getcwd()
    sys.path[:] = [*([] if "-P" in request["argv"][:2] else [first]), *paths, *_PATH]
    _end(_execute, argv)


def _look_fresh() -> None:
    """Undo what forking leaves: streams of the farm, threads of another environment, one state of random numbers."""
    import numpy
    import torch

    unbuffered = bool(os.environ.get("PYTHONUNBUFFERED"))
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115
    sys.stdout.reconfigure(line_buffering=os.isatty(1), write_through=unbuffered)
    sys.stderr.reconfigure(line_buffering=True)
    vars(sys).update(__stdin__=sys.stdin, __stdout__=sys.stdout, __stderr__=sys.stderr)
    numpy.random.seed()
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS") or os.cpu_count() or 1))


def _execute(argv: list[str]) -> None:
    import runpy
    import types

    kind = argv[0]
    if kind == "-c":
        sys.argv = ["-c", *argv[2:]]
        module = types.ModuleType("__main__")
        sys.modules["__main__"] = module
        exec(compile(argv[1], "<string>", "exec"), module.__dict__)
    elif kind == "-m":
        sys.argv = argv[1:]
        runpy.run_module(argv[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = argv
        runpy.run_path(kind, run_name="__main__")


def _end(task: Callable[..., None], *args: Any) -> NoReturn:
    """Do the task and end as an interpreter does, but for taking hundreds of modules apart."""
    import atexit
    import traceback

    code: Any = 0
    try:
        task(*args)
    except SystemExit as error:
        code = error.code
    except KeyboardInterrupt:
        code = -signal.SIGINT
    except BaseException as error:
        code = 1
        trace = error.__traceback__
        while trace is not None and trace.tb_frame.f_code.co_filename in (__file__, "<frozen runpy>"):
            trace = trace.tb_next
        traceback.print_exception(type(error), error, trace)
    if code is not None and not isinstance(code, int):
        print(code, file=sys.stderr)
        code = 1
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    if code is not None and code < 0:
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(0 if code is None else code & 0xFF)


def _judge(request: dict[str, Any], fds: list[int]) -> None:
    """In a fork: a pool's judge."""
    from drkernel.gym.pools.judge_process import serve

    _take_descriptors([3, 4, 2], fds)
    _end(serve, 3, 4)


def _zygote(request: dict[str, Any], fds: list[int]) -> None:
    """In a fork of what has warmed up: a zygote, and a nursery that is a fork of its own."""
    from drkernel.gym.runner import nursery, warm_up, zygote

    os.chdir("/")
    os.environ.clear()
    os.environ.update(request["env"])
    _take_descriptors([1, 2], [os.open(os.devnull, os.O_WRONLY), fds[1]])
    vars(nursery).update(subprocess=SimpleNamespace(Popen=_ForkedNursery, DEVNULL=None))
    vars(warm_up).update(warm_up=lambda devices: None)
    if request["card"]:
        import simulated_card

        simulated_card.install()
    _end(zygote.main, fds[0], request["folder"], request["without"])


class _ForkedNursery:
    """What of ``subprocess.Popen`` a zygote uses."""

    def __init__(self, command: list[str], *, pass_fds: list[int], **_: object):
        self.pid = os.fork()
        if self.pid == 0:
            from drkernel.gym.runner import nursery

            kept = {0, 1, 2, *pass_fds}
            for fd in {int(name) for name in os.listdir("/proc/self/fd")} - kept:
                with contextlib.suppress(OSError):  # that of the listing itself
                    os.close(fd)
            control = socket.socket(fileno=pass_fds[0])
            _end(nursery.main, control, json.loads(control.recv(1 << 16)))

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)

    def wait(self) -> None:
        os.waitpid(self.pid, 0)


_TASKS: dict[str, Callable[[dict[str, Any], list[int]], None]] = {"run": _run, "judge": _judge, "zygote": _zygote}
_PATH: list[str] = []


def _take_descriptors(numbers: list[int], fds: list[int]) -> None:
    """Give the descriptors the numbers that they have with their owner."""
    high = [os.dup2(fd, 500 + k) for k, fd in enumerate(fds)]
    for fd in fds:
        os.close(fd)
    for fd, number in zip(high, numbers, strict=True):
        os.dup2(fd, number, inheritable=True)
        os.close(fd)


def _keep_zygote(requests: socket.socket) -> None:
    """In a process of its own, as it has a thread: own the zygote that pools join; started when first asked for."""
    from drkernel.gym.pools import judge_process

    use_in_factories()
    zygote = judge_process.SharedZygote()
    while True:
        data, fds, _, _ = socket.recv_fds(requests, 64, 1)
        if not data:
            break
        with socket.socket(fileno=fds[0]) as asker, contextlib.suppress(OSError):
            joined, started = zygote.join()
            with joined:
                socket.send_fds(asker, [json.dumps({"pid": started.pid}).encode()], [joined.fileno()])
    zygote.close()


def _fork_zygotes(listener: socket.socket, owner: int, zygotes: socket.socket) -> None:
    """In a process of its own: once somebody has called, warm up as a zygote does, and fork."""
    while not select.select([listener], [], [], 0.5)[0]:
        if os.getppid() != owner:
            return
    from drkernel.gym.runner.warm_up import warm_up

    warm_up(devices=True)
    task = _Farm(listener, owner, zygotes).serve()
    if task is not None:
        task()


def _warm_up() -> None:
    """Import what commands and judges use, once."""
    import gc
    import importlib

    import drkernel.agents
    import drkernel.gym.judge.judge
    import drkernel.report.run
    import drkernel.rl.run.trainer
    import drkernel.serve.app
    import drkernel.solve.bench  # noqa: F401
    from drkernel.cli import COMMANDS
    from drkernel.gym.judge.memory import needed_bytes
    from drkernel.gym.pools.judge_process import _REHEARSAL
    from drkernel.gym.runner.warm_up import warm_up
    from ttir_executor.lower import jit

    for module, _ in COMMANDS.values():
        importlib.import_module(f"drkernel.cli.{module}")
    warm_up(devices=True)
    jit.prepare()
    needed_bytes(_REHEARSAL)
    gc.collect()
    gc.freeze()


def main() -> None:
    """Run the farm."""
    here = str(Path(__file__).parent)
    ours = [here, *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    _PATH[:] = [entry for entry in sys.path if entry not in ours]
    listener, others = (socket.socket(fileno=int(fd)) for fd in sys.argv[1:3])
    owner = int(sys.argv[3])
    zygotes, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    global _folder
    _folder = os.environ[FOLDER]
    if os.fork() == 0:
        for other in (zygotes, listener, others):
            other.close()
        return _keep_zygote(theirs)
    theirs.close()
    farm = os.getpid()
    if os.fork() == 0:
        listener.close()
        return _fork_zygotes(others, farm, zygotes)
    others.close()
    _warm_up()
    use_in_pools()
    task = _Farm(listener, owner, zygotes).serve()
    if task is not None:
        task()


if __name__ == "__main__":
    main()
