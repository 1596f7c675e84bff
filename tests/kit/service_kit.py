"""Requests, verdicts, a pool that answers at once, and a live server in this process."""

import asyncio
import socket
import threading

from drkernel.gym.request import EvalRequest, EvalSettings
from drkernel.serve import guard as listen
from drkernel.task import Provenance, Task
from drkernel.verdict import CandidateError
from verdicts import Judge, verdict_of
from waiting import until

REFERENCE = "class Model: ...\ndef get_inputs(): return []\ndef get_init_inputs(): return []\n"


def make_request(number=0, *, device="sim:h200", task="t"):
    return EvalRequest(
        task=Task(id=f"{task}/{number % 7}", level=1, reference=REFERENCE, provenance=Provenance(source="test")),
        candidate=f"class ModelNew:\n    number = {number}\n",
        settings=EvalSettings(device=device, profile=None),
    )


def body(*numbers, device="sim:h200", **fields):
    """What is posted to ``/v1/jobs`` for these requests."""
    return {"requests": [make_request(n, device=device).model_dump(mode="json") for n in numbers], **fields}


def make_verdict(request, status="correct", error=None):
    return verdict_of(
        status,
        task_id=request.task.id,
        device=request.settings.device,
        baseline=request.settings.baseline,
        error=CandidateError(type="Test", message=error) if error else None,
    )


class CountingPool(Judge):
    """Every candidate is correct; counts evaluations by request; may take a while, or fail at first."""

    def __init__(self, delay=0.0, fail_first=0):
        self.delay, self.fail_first = delay, fail_first
        self.calls = {}

    async def evaluate(self, request):
        count = self.calls[request.key] = self.calls.get(request.key, 0) + 1
        if self.delay:
            await asyncio.sleep(self.delay)
        return make_verdict(request, "infra_error" if count <= self.fail_first else "correct")


class LiveServer:
    """uvicorn in a thread on a free port."""

    def __init__(self, app, **options):
        self.socket = socket.socket()
        self.socket.bind(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.socket.getsockname()[1]}"
        self.server = listen.server(app, drain_s=1.0, **options)
        self.thread = threading.Thread(target=self.server.run, kwargs={"sockets": [self.socket]}, daemon=True)
        self.thread.start()
        until(lambda: self.server.started, 20)

    def stop(self):
        self.server.should_exit = True
        self.thread.join(20)
        self.socket.close()
