"""A judge in a process of its own: whatever ends it (memory, a crash, a hang) costs one attempt of one evaluation.

The process serves requests one at a time and ends when the pipe to its owner closes, or with the thread that started
it. Requests are sent pickled (both sides are trusted), verdicts come back as JSON.
"""

from __future__ import annotations

import ctypes
import json
import os
import pickle
import signal
import socket
import subprocess
import sys
import time
from multiprocessing.connection import Connection
from typing import Any

from drkernel.gym.request import EvalRequest
from drkernel.verdict import Verdict

START_S = 180.0
_BOOT = """
import sys
from multiprocessing.connection import Connection
pipe = Connection(int(sys.argv[1]))
sys.path[:] = pipe.recv()
from drkernel.gym.pools.judge_process import serve
serve(pipe)
"""
_REHEARSAL = """
import torch
class Model(torch.nn.Module):
    def forward(self, x):
        return torch.softmax(x, -1)
def get_inputs():
    return [torch.randn(2, 2)]
def get_init_inputs():
    return []
"""
PR_SET_PDEATHSIG = 1


class JudgeLost(RuntimeError):
    """The judge's process ended or hung; the message says how."""


class JudgeProcess:
    """The owner's side. Started at the first request, and again after a loss; for use from one thread.

    Only :meth:`kill` may be called from any thread. ``threads``: torch's intra-operator threads. ``budget``: bytes that
    one evaluation may take in the judge. ``spares``: runners kept ready.
    """

    def __init__(self, *, threads: int, budget: int, spares: int = 1):
        self.lost = 0
        """times that the process ended or hung during an evaluation"""
        self.state: dict[str, Any] = {}
        """health of its session factory, as of the last answer"""
        self._terms = {"threads": threads, "budget": budget, "spares": spares, "owner": os.getpid()}
        self._process: subprocess.Popen[bytes] | None = None
        self._pipe: Connection | None = None
        self._closed = False

    @property
    def pid(self) -> int | None:
        """The process id, while the process runs."""
        process = self._process
        return process.pid if process is not None and process.poll() is None else None

    def start(self) -> None:
        """Start the process unless it runs (about three seconds). Raises :class:`JudgeLost` when it does not come
        up."""
        if self.pid is not None:
            return
        if self._closed:
            raise JudgeLost("the pool is closed")
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-c", _BOOT, str(theirs.fileno())],
                pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, start_new_session=True,
            )  # fmt: skip
        self._pipe = Connection(ours.detach())
        self._pipe.send([entry for entry in sys.path if entry])
        self._pipe.send(self._terms)
        self.state = json.loads(self._answer(START_S))

    def evaluate(self, request: EvalRequest) -> Verdict:
        """Run one evaluation. Raises :class:`JudgeLost` when the process ends meanwhile or takes far too long."""
        self.start()
        assert self._pipe is not None
        try:
            self._pipe.send_bytes(pickle.dumps(request))
            # far beyond what an evaluation takes: the judge itself keeps the candidate's deadline
            answer = json.loads(self._answer(300.0 + 4.0 * request.settings.deadline_s))
        except OSError:
            raise self._loss() from None
        self.state = answer["state"]
        return Verdict.model_validate(answer["verdict"])

    def _answer(self, seconds: float) -> bytes:
        assert self._pipe is not None and self._process is not None
        try:
            if not self._pipe.poll(seconds):
                self._process.kill()
                self._process.wait()
                raise JudgeLost(f"the judge did not answer within {seconds:g} s and was ended")
            return self._pipe.recv_bytes()
        except (EOFError, OSError):
            raise self._loss() from None

    def _loss(self) -> JudgeLost:
        self.lost += 1
        assert self._process is not None and self._pipe is not None
        self._pipe.close()
        self._process.kill()
        code = self._process.wait()
        if code < 0:
            name = signal.Signals(-code).name
            more = "; the system may have run out of memory" if code == -signal.SIGKILL and not self._closed else ""
            return JudgeLost(f"the judge's process was ended by {name}{more}")
        return JudgeLost(f"the judge's process ended with code {code}")

    def kill(self) -> None:
        """Kill the process and everything that it started, permanently."""
        self._closed = True
        process = self._process
        if process is not None:
            process.kill()

    def close(self) -> None:
        """Kill the process and wait until it is gone."""
        self.kill()
        if self._process is not None:
            self._process.wait()
            if self._pipe is not None:
                self._pipe.close()


# ---- in the process


def serve(pipe: Connection) -> None:
    """Judge until the owner is gone."""
    terms = pipe.recv()
    _end_with(terms["owner"])
    import torch

    from drkernel.gym.judge.judge import evaluate
    from drkernel.gym.judge.memory import bound_this_process, needed_bytes
    from drkernel.gym.pools.local import infra_verdict
    from drkernel.gym.session.factory import SessionFactory

    torch.set_num_threads(terms["threads"])
    with SessionFactory(spares=terms["spares"]) as factory:
        factory.warm()
        needed_bytes(_REHEARSAL)  # imports what the first estimate needs
        bound_this_process(terms["budget"])
        pipe.send_bytes(json.dumps(factory.health()).encode())
        while True:
            try:
                request = pickle.loads(pipe.recv_bytes())
            except (EOFError, OSError):
                return
            start = time.monotonic()
            try:
                verdict = evaluate(request, factory, terms["budget"])
            except Exception as error:  # a judge's own mistake must not look like the candidate's
                verdict = infra_verdict(request, error, time.monotonic() - start)
            answer = b'{"verdict": ' + verdict.model_dump_json().encode() + b', "state": '
            pipe.send_bytes(answer + json.dumps(factory.health()).encode() + b"}")


def _end_with(owner: int) -> None:
    """Die with the thread that started this process; a Ctrl-C in the terminal is the owner's to handle."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != owner:
        os._exit(1)
