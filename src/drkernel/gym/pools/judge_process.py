"""A judge in a process of its own: whatever ends it (memory, a crash, a hang) costs one attempt of one evaluation.

The process is forked on the trusted side of the zygote (nursery.py), serves requests one at a time, and ends when the
pipe to its owner closes, or with the zygote. Requests are sent pickled (both sides are trusted), verdicts come back as
JSON.

Verdicts on requests that no judge could evaluate.
"""

import contextlib
import hashlib
import json
import os
import pickle
import signal
import socket
import sys
import threading
import time
import traceback
from multiprocessing.connection import Connection
from typing import Any

from drkernel.gym.judge.memory import too_large
from drkernel.gym.request import EvalRequest
from drkernel.gym.runner.launcher import ForkedJudge, Launcher, ZygoteError
from drkernel.gym.runner.processes import private_bytes
from drkernel.sim.spec import card_data, learn_card
from drkernel.verdict import CandidateError, Status, Verdict


def infra_verdict(request: EvalRequest, error: BaseException, seconds: float) -> Verdict:
    """The verdict for trouble that is not the candidate's."""
    frames = "".join(traceback.format_exception(error))[-8000:]
    told = CandidateError(type=type(error).__name__, message=str(error), traceback=frames)
    return _verdict_without_judge(request, "infra_error", told, seconds)


def too_large_verdict(request: EvalRequest, error: BaseException, budget: int, seconds: float) -> Verdict:
    """The verdict for a task whose judge was ended because of its memory use."""
    told = CandidateError(type="TaskTooLarge", message=too_large(str(error), budget))
    return _verdict_without_judge(request, "invalid_request", told, seconds)


def _verdict_without_judge(request: EvalRequest, status: Status, error: CandidateError, seconds: float) -> Verdict:
    return Verdict(
        status=status,
        task_id=request.task.id,
        candidate_sha256=hashlib.sha256(request.candidate.encode("utf-8", "surrogatepass")).hexdigest(),
        device=request.settings.device,
        baseline=request.settings.baseline,
        error=error,
        seconds=seconds,
    )


JUDGES = 8
"""judges that share a zygote; it forks one job at a time, which takes milliseconds"""
START_S = 180.0
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


class SharedZygote:
    """The zygote and nursery of several judges; owned by the pool. Started when the first judge asks for it, and again
    when it has died. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._launcher: Launcher | None = None
        self._closed = False
        self.started = 0
        """number of times it was started"""

    @property
    def launcher(self) -> Launcher | None:
        """The zygote, where one is alive."""
        launcher = self._launcher
        return launcher if launcher is not None and launcher.alive else None

    def join(self) -> tuple[socket.socket, Launcher]:
        """A judge's socket to the zygote, and the zygote. Raises :class:`ZygoteError`."""
        with self._lock:
            if self._closed:
                raise OSError("the pool is closed")
            if self._launcher is not None:
                with contextlib.suppress(ZygoteError):  # it has just died, or a while ago
                    return self._launcher.join(), self._launcher
                self._launcher.close()
            self._launcher = Launcher()
            self.started += 1
            return self._launcher.join(), self._launcher

    def close(self) -> None:
        """End it and all of its jobs, for good."""
        with self._lock:
            self._closed = True
            if self._launcher is not None:
                self._launcher.close()
                self._launcher = None


class JudgeLost(RuntimeError):
    """The judge's process ended or hung; the message says how."""


class JudgeOverMemory(RuntimeError):
    """The judge's process was ended because the evaluation took more memory than there is for it."""


class JudgeProcess:
    """The owner's side. Started at the first request, and again after a loss; evaluates for one thread.

    :meth:`start`, :meth:`kill` and :meth:`end_over_memory` may be called from any thread. ``threads``: torch's
    intra-operator threads. ``budget``: bytes that one evaluation may take in the judge; ``kept``: bytes of freed memory
    that it keeps for the next one.
    """

    def __init__(self, *, threads: int, budget: int, kept: int, zygote: SharedZygote):
        self._zygote = zygote
        self.lost = 0
        """times that the process ended or hung during an evaluation"""
        self.state: dict[str, Any] = {}
        """health of its session factory, as of the last answer"""
        self._terms = {"threads": threads, "budget": budget, "kept": kept}
        self.busy = False
        """an evaluation is under way"""
        self.evaluation = 0
        """number of the evaluation under way, or of the last one"""
        self.idle_bytes = 0
        """memory that the process held before its first evaluation"""
        self._over_memory: str | None = None
        self._lock, self._starting = threading.Lock(), threading.Lock()
        self._process: ForkedJudge | None = None
        self._pipe: Connection | None = None
        self._closed = False

    @property
    def pid(self) -> int | None:
        """The process id, while the process runs."""
        process = self._process
        return process.pid if process is not None and process.poll() is None else None

    def start(self) -> None:
        """Start the process unless it runs, and with the first one the zygote (about two seconds). Raises
        :class:`JudgeLost` when it does not come up."""
        with self._starting:
            if self.pid is None:
                self._start()

    def _start(self) -> None:
        if self._closed:
            raise JudgeLost("the pool is closed")
        ours, theirs = socket.socketpair()
        try:
            joined, launcher = self._zygote.join()
            with theirs, joined:
                self._process = self._fork(launcher, [theirs.fileno(), joined.fileno(), 2])
        except (ZygoteError, OSError) as error:
            ours.close()
            raise JudgeLost(str(error)) from error
        self._pipe = Connection(ours.detach())
        surroundings = {"paths": [entry for entry in sys.path if entry], "env": dict(os.environ), "cwd": os.getcwd()}
        self._pipe.send({**self._terms, **surroundings, "zygote_pid": launcher.pid})
        self.state = json.loads(self._answer(START_S))
        self.idle_bytes = private_bytes(self._process.pid)

    def _fork(self, launcher: Launcher, fds: list[int]) -> ForkedJudge:
        return launcher.fork_judge(__name__, fds)

    def evaluate(self, request: EvalRequest) -> Verdict:
        """Run one evaluation. Raises :class:`JudgeLost` when the process ends meanwhile or takes far too long, and
        :class:`JudgeOverMemory` when it was ended by :meth:`end_over_memory`.
        """
        self.start()
        with self._lock:
            self.evaluation += 1
            self.busy = True
        try:
            return self._evaluate(request)
        except JudgeLost:
            if self._over_memory is None:
                raise
            why, self._over_memory = self._over_memory, None
            raise JudgeOverMemory(why) from None
        finally:
            with self._lock:
                self.busy = False

    def end_over_memory(self, evaluation: int, nbytes: int, why: str) -> bool:
        """End the process if it is still at that evaluation, which has taken this many bytes; from any thread.

        Returns False, and does nothing, when the evaluation is over.
        """
        with self._lock:
            if not self.busy or self.evaluation != evaluation or self._process is None:
                return False
            self._over_memory = f"takes {nbytes / 2**30:.1f} GiB of memory in the judge ({why})"
            self._process.kill()
            return True

    def _evaluate(self, request: EvalRequest) -> Verdict:
        assert self._pipe is not None
        try:
            card = card_data(request.settings.device.removeprefix("sim:"))
            self._pipe.send_bytes(pickle.dumps((card, request)))
            # far beyond what an evaluation takes: the judge itself keeps the candidate's deadline
            answer = json.loads(self._answer(300.0 + 4.0 * request.settings.deadline_s))
        except OSError:
            raise self._loss() from None
        self.state = answer["state"]
        if not self.state["zygote_alive"]:
            self._put_away()  # the next one joins a new zygote
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

    def _put_away(self) -> int:
        """End the process; returns its exit code."""
        assert self._process is not None and self._pipe is not None
        self._pipe.close()
        self._process.kill()
        return self._process.wait()

    def _loss(self) -> JudgeLost:
        self.lost += self._over_memory is None
        code = self._put_away()
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


def serve(pipe_fd: int, zygote_fd: int) -> None:
    """Judge until the owner is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a Ctrl-C in the terminal is the owner's to handle
    pipe = Connection(pipe_fd)
    terms = pipe.recv()
    sys.path[:] = terms["paths"]
    os.environ.clear()
    os.environ.update(terms["env"])
    os.chdir(terms["cwd"])
    import torch

    from drkernel.gym.judge.judge import evaluate
    from drkernel.gym.judge.memory import bound_this_process, give_back, needed_bytes, resident_bytes
    from drkernel.gym.session.factory import SessionFactory

    torch.set_num_threads(terms["threads"])
    launcher = Launcher(joined=socket.socket(fileno=zygote_fd), pid=terms["zygote_pid"])
    with SessionFactory(launcher=launcher) as factory:
        factory.warm()
        needed_bytes(_REHEARSAL)  # imports what the first estimate needs
        bound_this_process(terms["budget"])
        pipe.send_bytes(json.dumps(factory.health()).encode())
        kept = resident_bytes() + terms["kept"]
        while True:
            try:
                card, request = pickle.loads(pipe.recv_bytes())
            except (EOFError, OSError):
                return
            learn_card(card)
            start = time.monotonic()
            try:
                verdict = evaluate(request, factory, terms["budget"])
            except Exception as error:  # a judge's own mistake must not look like the candidate's
                verdict = infra_verdict(request, error, time.monotonic() - start)
            answer = b'{"verdict": ' + verdict.model_dump_json().encode() + b', "state": '
            pipe.send_bytes(answer + json.dumps(factory.health()).encode() + b"}")
            give_back(kept)
