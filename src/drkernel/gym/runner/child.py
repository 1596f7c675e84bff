"""The start of a freshly forked child of the zygote: arrange its descriptors, confine itself, become runner or
device.
"""

from __future__ import annotations

import fcntl
import os
import resource
import signal
import socket
import sys
import tempfile
import traceback
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NoReturn

from drkernel.gym.sandbox import layers as sandbox
from drkernel.gym.sandbox import linux

if TYPE_CHECKING:
    from drkernel.gym.device import Device

PASSED = {
    "LD_LIBRARY_PATH": "libcuda.so.1 or the toolkit's libraries are outside of the loader's own folders",
    "CUDA_HOME": "load_inline and torch.compile look for nvcc and the headers there",
    "CUDA_PATH": "the same by its other name",
    "TRITON_LIBCUDA_PATH": "Triton links its driver's helper against the libcuda.so.1 there",
    **dict.fromkeys(sandbox.COMPILERS, "the compilers, where they are not called gcc and g++"),
}
"""variables of the judge's environment that the zygote and runners on a real GPU keep -> what fails without them"""
CACHES = {
    "TRITON_CACHE_DIR": "triton", "XDG_CACHE_HOME": "cache", "TORCH_EXTENSIONS_DIR": "extensions",
    "TORCHINDUCTOR_CACHE_DIR": "inductor",
}  # fmt: skip
"""variable -> folder in scratch"""
FAILED = 70
"""exit code of a child that could not do its work"""
Main = Callable[[list[str], dict[str, str]], None]


def fork(
    main: Main,
    fds: list[int],
    output: int | None,
    how: sandbox.Confinement | None,
    surroundings: sandbox.Surroundings,
    forked: Callable[[], int] = os.fork,
) -> int:
    """Fork a child that runs ``main(layers, missing)`` with ``fds`` as 3, 4, ...; returns its pid.

    ``output`` becomes its stdout and stderr; without one, stdout goes nowhere and stderr stays. ``how``: its
    confinement; None for a judge, which ends with its parent and has no other bounds. ``forked``: forks, and says whose
    child it is.
    """
    pid = forked()
    if pid:
        return pid
    status = FAILED
    try:
        signal.set_wakeup_fd(-1)
        for name in (signal.SIGCHLD, signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(name, signal.SIG_DFL)
        os.setsid()
        if how is None:
            linux.prctl(linux.PR_SET_PDEATHSIG, signal.SIGKILL)
            linux.prctl(linux.PR_SET_DUMPABLE, 0)  # its secrets are not for runners of the same user
            _arrange(fds, output)
            main([], {})
        else:
            if how.gpu and surroundings.pid_namespace:
                sandbox.mount_own_proc(surroundings)
            if how.scratch:
                _enter(how.scratch, os.environ["PATH"] if how.limits.allow_exec else os.defpath, gpu=how.gpu)
            main(*sandbox.confine(how, surroundings, lambda: _arrange(fds, output)))
        status = 0
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(status)


def fork_runner(
    main: Main, fds: list[int], output: int, how: sandbox.Confinement, surroundings: sandbox.Surroundings
) -> int:
    """Fork a runner, in a PID namespace of its own if possible; the pid may be that of the namespace's keeper."""
    if not surroundings.pid_namespace:
        return fork(main, fds, output, how, surroundings)
    if not surroundings.needs_keeper:
        with sandbox.child_in_new_pid_namespace():
            return fork(main, fds, output, how, surroundings)
    pid = os.fork()
    if pid == 0:
        _keep(main, fds, output, how, surroundings)
    return pid


def _keep(
    main: Main, fds: list[int], output: int, how: sandbox.Confinement, surroundings: sandbox.Surroundings
) -> NoReturn:
    """Create the namespace, start the runner in it, and exit as it exits; when the keeper dies, so does the runner."""
    status = FAILED
    try:
        signal.set_wakeup_fd(-1)
        linux.prctl(linux.PR_SET_PDEATHSIG, signal.SIGKILL)
        linux.unshare(linux.CLONE_NEWPID)
        pid = fork(main, fds, output, how, surroundings)
        linux.close_from(3)
        waited = os.waitpid(pid, 0)[1]
        if os.WIFSIGNALED(waited):
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            os.kill(os.getpid(), os.WTERMSIG(waited))
        status = os.waitstatus_to_exitcode(waited)
    finally:
        os._exit(status)


def _arrange(fds: list[int], output: int | None) -> None:
    """Set up the standard streams, the job's descriptors from 3 up, and nothing else."""
    first = 3 + len(fds)
    null = os.open("/dev/null", os.O_RDWR)
    out, *own = [fcntl.fcntl(fd, fcntl.F_DUPFD, first) for fd in (null if output is None else output, *fds)]
    os.dup2(null, 0)
    os.dup2(out, 1)
    if output is not None:
        os.dup2(out, 2)
    for index, fd in enumerate(own):
        os.dup2(fd, 3 + index, inheritable=False)
    linux.close_from(first)


def _enter(scratch: str, path: str, *, gpu: bool) -> None:
    """Make ``scratch`` the home, working folder and every cache, in an environment that reveals nothing; with ``gpu``,
    the paths of CUDA and of the compiler."""
    kept = {name: os.environ[name] for name in PASSED if gpu and name in os.environ}
    os.environ.clear()
    os.environ.update(kept, PATH=path, HOME=scratch, TMPDIR=scratch, LANG="C.UTF-8", OMP_NUM_THREADS="1")
    os.environ["USER"] = "candidate"  # its user id has no name, and TorchInductor asks for one
    os.environ.update({name: os.path.join(scratch, folder) for name, folder in CACHES.items()})
    os.chdir(scratch)


def device_main(gpu: str, card: dict[str, Any] | None, memory_bytes: int) -> Main:
    """Run as the device, on the judge's side, with descriptors 3 (host) and 4 (control). ``card``: a user's own GPU."""

    def main(layers: list[str], missing: dict[str, str]) -> None:
        from drkernel.sim.process.device_server import serve_device
        from drkernel.sim.spec import learn_card

        learn_card(card)
        serve_device(gpu, socket.socket(fileno=3), socket.socket(fileno=4), memory_bytes=memory_bytes)

    return main


def runner_main(device: Device, scratch: str, visible: Mapping[str, str]) -> Main:
    """Run as the runner: untrusted from the candidate's first line on; descriptors 3 (judge) and 4 (simulated
    device). ``visible``: the variables by which it sees one real GPU, as its first."""

    def main(layers: list[str], missing: dict[str, str]) -> None:
        from drkernel.sim.wire.frames import send

        sys.argv[:] = ["candidate"]
        os.environ.update(visible)  # before CUDA starts: it reads them once
        tempfile.tempdir = None  # the zygote's choice; this process has TMPDIR set
        sys.path[:] = [entry for entry in sys.path if "site-packages" in entry or entry.startswith(sys.base_prefix)]
        channel = socket.socket(fileno=3)
        greeting = {"layers": layers, "missing": missing}
        if device.spec is not None:
            from drkernel.gym.runner.runner import Runner
            from drkernel.sim.process.device_server import connect_host

            send(channel, greeting)
            with connect_host(device.spec.name, socket.socket(fileno=4)) as link:
                Runner(channel, link, scratch).serve()
        else:
            from drkernel.gym.runner.cuda import CudaRunner

            inside = "cuda:0" if device.kind == "cuda" else device.name
            try:
                runner = CudaRunner(channel, scratch, inside)
            except Exception as error:  # no candidate is here yet: the machine's fault, of which the judge is told
                seen = "".join(f" {name}={value}" for name, value in visible.items())
                why = f"{device.name}, as {inside}{seen}, does not start: {type(error).__name__}: {error}"
                why += "".join(f"; {layer}: {reason}" for layer, reason in missing.items())
                send(channel, {"failed": why})
                raise
            send(channel, greeting)
            runner.serve()

    return main
