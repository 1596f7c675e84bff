"""The nursery: a second warm process, started afresh, that forks the trusted side: judges and device processes.

A forked process has its parent's address layout. If devices and judges were forked from the process that runners are
forked from, a candidate that found a hole in one of them would know where everything is. The nursery is started by
exec, so that the kernel lays it out anew; it imports what they need, once, and forks when the zygote requests one.

What it forks is the zygote's child, which watches, ends and reaps it.
"""

import gc
import importlib
import json
import os
import signal
import socket
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

from drkernel.gym.runner import child, processes
from drkernel.gym.sandbox import layers as sandbox
from drkernel.gym.sandbox import linux, seccomp

START_SECONDS = 120.0
FORK_SECONDS = 30.0
MAX_PACKET = 64 << 10
_BOOT = """
import json, socket, sys
control = socket.socket(fileno=int(sys.argv[1]))
config = json.loads(control.recv(65536))
sys.path[:0] = config["paths"]
from drkernel.gym.runner.nursery import main
main(control, config)
"""
TRUSTED = {
    "OMP_WAIT_POLICY": "PASSIVE", "MALLOC_MMAP_THRESHOLD_": str(256 << 20), "MALLOC_TRIM_THRESHOLD_": str(512 << 20),
    "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1",
}  # fmt: skip
"""torch's threads sleep between operators: where they spin, a judge of two threads needs five times the processor time
on a machine that has anything else to do, its own runners and devices included. And freed memory is used again, all of
it within these bytes: given back after every tensor, each of its pages would have to be cleared the next time. The heap
is of huge pages, so that its first use costs one fault where small ones take 512, and a fork copies one entry for
each"""
_NOT_SENT = ("rules", "uid_claim")


@dataclass(frozen=True)
class DeviceTerms:
    """The terms that must be known to fork a device."""

    gpu: str
    card: dict[str, Any] | None
    """of a user's own GPU, its values"""
    memory_bytes: int
    limits: sandbox.RunnerLimits
    uid: int | None


class Nursery:
    """The zygote's end. Raises ``OSError`` when the nursery is gone or does not answer."""

    def __init__(self, surroundings: sandbox.Surroundings):
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-c", _BOOT, str(theirs.fileno())],
                pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                env={**os.environ, **TRUSTED},
            )  # fmt: skip
        self.pid = self._process.pid
        self.baseline = 0
        """bytes of a device that has done nothing yet"""
        config = {
            "paths": [entry for entry in sys.path if entry],
            "zygote": os.getpid(),
            "rules": surroundings.rules is not None,
            "surroundings": {key: value for key, value in vars(surroundings).items() if key not in _NOT_SENT},
        }
        self._control.send(json.dumps(config).encode())

    def wait_ready(self) -> None:
        """Wait until it has imported everything."""
        self.baseline = int(self._answer(START_SECONDS)["baseline"])

    def fork(self, terms: DeviceTerms, fds: list[int]) -> int:
        """Fork a new device on the sockets ``fds`` (host, control); return its pid. It is this process's child."""
        return self._fork({**vars(terms), "limits": vars(terms.limits)}, fds)

    def fork_judge(self, entry: str, fds: list[int]) -> int:
        """Fork a judge that runs the module ``entry`` with ``fds`` (owner, zygote, standard error); return its pid. It
        is this process's child."""
        return self._fork({"entry": entry}, fds)

    def _fork(self, message: dict[str, Any], fds: list[int]) -> int:
        socket.send_fds(self._control, [json.dumps(message).encode()], fds)
        return int(self._answer(FORK_SECONDS)["pid"])

    def close(self) -> None:
        """End it."""
        self._control.close()
        self._process.kill()
        self._process.wait()

    def _answer(self, seconds: float) -> dict[str, Any]:
        self._control.settimeout(seconds)
        data = self._control.recv(MAX_PACKET)
        if not data:
            raise OSError("the nursery of the device processes is gone")
        answer: dict[str, Any] = json.loads(data)
        if "failed" in answer:
            raise OSError(f"nothing was forked: {answer['failed']}")
        return answer


# ---- in the nursery


def main(control: socket.socket, config: dict[str, Any]) -> None:
    """Run the nursery until the zygote is gone."""
    gc.disable()  # it would walk what is imported many times: a fifth of the start
    linux.prctl(linux.PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != config["zygote"]:
        return
    surroundings = sandbox.Surroundings(**config["surroundings"])
    if config["rules"]:
        surroundings.rules = seccomp.Rules(sandbox.readable_paths(), sandbox.WRITABLE_DEVICES)
    from drkernel.gym.runner.warm_up import warm_up

    warm_up(devices=True)
    gc.enable()
    _tell(control, {"baseline": processes.private_bytes(os.getpid())})
    while True:
        data, fds, _, _ = socket.recv_fds(control, MAX_PACKET, 4)
        if not data:
            return
        try:
            _tell(control, {"pid": _fork(json.loads(data), fds, surroundings)})
        except Exception as error:  # whatever it is, the next device may do
            _tell(control, {"failed": f"{type(error).__name__}: {error}"})
        finally:
            for fd in fds:
                os.close(fd)
        linux.forked()


def _tell(control: socket.socket, message: dict[str, Any]) -> None:
    control.send(json.dumps(message).encode())


def _fork(message: dict[str, Any], fds: list[int], surroundings: sandbox.Surroundings) -> int:
    """Fork the device or judge that was asked for, as the zygote's child; returns its pid."""
    if "entry" in message:
        *own, errors = fds
        entry = message["entry"]  # of a floor above this one
        serve: child.Main = lambda *_: importlib.import_module(entry).serve(3, 4)  # noqa: E731
        return child.fork(serve, own, errors, None, surroundings, linux.fork_sibling)
    limits, in_use = sandbox.RunnerLimits(**message["limits"]), processes.address_space(os.getpid())
    how = sandbox.Confinement(limits, None, message["uid"], in_use, trusted=True)
    main = child.device_main(message["gpu"], message["card"], message["memory_bytes"])
    return child.fork(main, fds, None, how, surroundings, linux.fork_sibling)
