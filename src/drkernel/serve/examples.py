"""Example bodies for the OpenAPI document, built from the records themselves so that they stay valid."""

from __future__ import annotations

from typing import Any

from fastapi import Body

from drkernel.gym.request import EvalRequest, EvalSettings
from drkernel.task import Provenance, Task
from drkernel.verdict import Verdict

REFERENCE = """import torch

ROWS = 1024

class Model(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x) * 2.0 + 1.0

def get_inputs():
    return [torch.randn(ROWS, 1024)]

def get_init_inputs():
    return []
"""

CANDIDATE = """import torch, triton
import triton.language as tl

@triton.jit
def fused(x, o, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(o + i, tl.maximum(tl.load(x + i, mask=i < n), 0.0) * 2.0 + 1.0, mask=i < n)

class ModelNew(torch.nn.Module):
    def forward(self, x):
        o = torch.empty_like(x)
        fused[(triton.cdiv(x.numel(), 1024),)](x, o, x.numel(), B=1024)
        return o
"""

REQUEST = EvalRequest(
    task=Task(id="my/relu", reference=REFERENCE, profiles={"tiny": {"ROWS": 64}}, provenance=Provenance(source="file")),
    candidate=CANDIDATE,
    settings=EvalSettings(device="sim:h200", profile="tiny"),
)

_VERDICT = Verdict(status="correct", task_id="my/relu", candidate_sha256="0" * 64, device="sim:h200")
_JOB = "0123456789abcdef01234567"
_SUBMIT = {"requests": [REQUEST.model_dump(mode="json", exclude_defaults=True)]}
_EVALUATE = {
    "task_id": "job-1",
    "reference_code": REFERENCE,
    "kernel_code": CANDIDATE,
    "backend": "triton",
    "timeout": 120,
    "entry_point": "Model",
}


def _body(**examples: tuple[str, Any]) -> Any:
    return Body(openapi_examples={name: {"summary": text, "value": value} for name, (text, value) in examples.items()})


SUBMIT = _body(
    wait=("evaluate one candidate and wait for its verdict", {**_SUBMIT, "wait_s": 60}),
    later=("get an id at once, ask for the verdict later", {**_SUBMIT, "priority": 5}),
)
LEASE = _body(any=("work of any kind, for one of 8 slots", {"worker": "node-7", "slots": 8, "wait_s": 20}))
BEAT = _body(two=("still at work on two jobs", {"worker": "node-7", "jobs": [_JOB, _JOB[::-1]]}))
COMPLETE = _body(done=("a verdict", {"worker": "node-7", "job_id": _JOB, "verdict": _VERDICT.model_dump(mode="json")}))
RELEASE = _body(one=("the machine has been seen to", {"worker": "node-7"}))
LEAVE = _body(lost=("its machine is gone", {"worker": "node-7", "trouble": "the node left the cluster"}))
EVALUATE = _body(one=("an evaluation as KernelGYM's clients send it", _EVALUATE))
BATCH = _body(one=("a batch of one", {"batch_id": "b-1", "tasks": [_EVALUATE]}))
WORKFLOW = _body(one=("an evaluation as a task of a workflow", {"workflow": "kernelbench", "payload": _EVALUATE}))
