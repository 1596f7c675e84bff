"""What the gym's tests share: the door to the judge, ``gym.grade(task, candidate) -> verdict``, and short ways to run
a candidate in a session and to see what it could do."""

import contextlib

import psutil
import torch

from corpus_grading import task_named
from drkernel.gym.judge.judge import evaluate
from drkernel.gym.request import EvalRequest, EvalSettings
from drkernel.gym.session.base import OpensSessions
from drkernel.gym.session.factory import SessionFactory
from drkernel.gym.session.protocol import SessionError
from drkernel.task import Task
from drkernel.verdict import Verdict
from waiting import until

SETTINGS = EvalSettings(deadline_s=40, memory_bytes=512 << 20, max_output_bytes=4096)
GRADING = {"profile": None, "deadline_s": 60.0, "memory_bytes": 1 << 30, "seed": 20261128}
"""the seed makes a test say the same in every run; what depends on the draw shows by ``hack_recall.py --times``"""


def grade(task: Task | str, candidate: str, factory: OpensSessions, **settings: object) -> Verdict:
    """The judge's verdict. ``task``: one of the corpus's by name, or any; ``settings``: as ``EvalSettings`` has them,
    by default the task as it stands, a minute, a
    gigabyte, and draws that repeat."""
    wanted = task_named(task) if isinstance(task, str) else task
    chosen = EvalSettings(**{**GRADING, **settings})
    return evaluate(EvalRequest(task=wanted, candidate=candidate, settings=chosen), factory)


class Gym:
    """A factory, and short ways to run a candidate in it."""

    def __init__(self, *without: str):
        self.factory = SessionFactory(without=without, spares=0).warm()
        self.always: set[int] = set()
        self.always = {process.pid for process in self.processes()}

    def grade(self, task: Task | str, candidate: str, **settings: object) -> Verdict:
        """The verdict on a candidate (:func:`grade`)."""
        return grade(task, candidate, self.factory, **settings)

    def forward(self, body: str, *inputs: torch.Tensor, settings: EvalSettings = SETTINGS, top: str = ""):
        """The result of one call of a module with this ``forward`` body, or the error that ended it."""
        source = f"{HEAD}{top}\nclass ModelNew(nn.Module):\n    def forward(self, *inputs):\n"
        source += "".join(f"        {line}\n" for line in body.strip("\n").splitlines())
        return self.load_and_call(source, *inputs, settings=settings)

    def load_and_call(self, source: str, *inputs: torch.Tensor, settings: EvalSettings = SETTINGS):
        """Load a source with no arguments, call it once."""
        with self.factory.open(settings) as session:
            try:
                session.load(source, [], {}, seed=0)
                return session.call([session.put(value) for value in inputs])
            except SessionError as error:
                return error
            finally:
                self.last_stdout = session.stdout()
                self.last_job = session.job
                session.kill()
                assert session.job.wait_until_gone(60), "the job was not cleaned up"

    def says(self, body: str, **kwargs) -> str:
        """What ``forward`` raised, as text: how these tests see what an untrusted process could do."""
        error = self.forward(body, **kwargs)
        assert isinstance(error, SessionError), error
        return f"{error.detail.type}: {error.detail.message}"

    def strays(self) -> list[psutil.Process]:
        """Processes of a job that live on, wherever they have gone: by the name of its scratch folder."""
        found = []
        for process in psutil.process_iter():
            try:
                if process.cwd().startswith(self.factory._launcher._folder):
                    found.append(process)
            except (psutil.NoSuchProcess, psutil.AccessDenied):
                continue
        return [one for one in psutil.wait_procs(found, timeout=2)[1] if one.status() != psutil.STATUS_ZOMBIE]

    def processes(self) -> list[psutil.Process]:
        """Every process of a job of this factory."""
        with contextlib.suppress(psutil.NoSuchProcess):
            zygote = psutil.Process(self.factory._alive().pid)
            own = {*self.always, self.factory.health()["nursery_pid"]}
            return [process for process in zygote.children(recursive=True) if process.pid not in own]
        return []

    def settle(self, seconds: float = 60) -> None:
        """Until every job of earlier tests is gone."""
        until(lambda: not self.factory.health()["jobs"], seconds, every=0.01)

    def is_healthy(self) -> bool:
        """Whether the next job does right, and nothing of earlier ones is left."""
        result = self.forward("return inputs[0] + 1", torch.zeros(3))
        return torch.equal(result.outputs[0].value, torch.ones(3)) and not self.processes()


HEAD = "import os, sys, time, ctypes, socket, signal, threading\nimport torch\nfrom torch import nn\n"
