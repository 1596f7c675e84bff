"""The routes of the KernelGYM server, implemented over this service; docs/kernelgym.md lists the differences.

The routes of its clients exist: ``/evaluate``, ``/evaluate/batch``, ``/workflow/submit``, ``/workflow/results/ID``,
``/status/ID``, ``/results/ID``, ``/workers/status``, ``/queue/status`` and cancelling a task, not those of its workers.
A client's own ``task_id`` names the job, durably.
"""

import asyncio
import time
from datetime import UTC, datetime
from typing import Annotated, Any, Literal
from uuid import uuid4

from fastapi import FastAPI, HTTPException, Request
from pydantic import BaseModel, BeforeValidator, Field, StrictBool, ValidationError, model_validator

from drkernel.gym.kernelgym import metadata, outcome
from drkernel.gym.request import EvalRequest, EvalSettings
from drkernel.serve import pages
from drkernel.serve.protocol import JobView, unicode_only
from drkernel.serve.service import Service
from drkernel.task import Provenance, Task

MISSING: dict[int | str, dict[str, Any]] = {404: {"description": "no such task, or it has no result yet"}}
PRIORITIES = {"low": -10, "normal": 0, "high": 10}


def _plain(text: Any) -> Any:
    return text.strip().lower() if isinstance(text, str) else text


Served = Annotated[Literal["kernelbench"] | None, BeforeValidator(_plain)]
"""the one workflow, toolkit and adapter that is served"""


class _Body(BaseModel):
    _unicode = model_validator(mode="before")(unicode_only)


class EvaluateBody(_Body):
    """An evaluation as KernelGYM's clients send it; fields without a meaning here are accepted and ignored."""

    task_id: str = Field(min_length=1, max_length=100)
    reference_code: str = Field(min_length=10, max_length=100_000)
    kernel_code: str = Field(min_length=10, max_length=100_000)
    toolkit: Served = "kernelbench"
    backend_adapter: Served = "kernelbench"
    backend: Annotated[Literal["triton", "cuda"], BeforeValidator(_plain)] = "triton"
    num_correct_trials: int = Field(5, ge=1, le=20)
    num_perf_trials: int = Field(100, ge=1, le=1000)
    timeout: int = Field(300, ge=10, le=3600)
    priority: Literal["low", "normal", "high"] = "normal"
    force_refresh: StrictBool = False
    entry_point: str = Field("Model", pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,80}$")
    reference_backend: str | None = None
    workflow: Served = "kernelbench"
    uuid: str | None = Field(None, max_length=200)
    measure_performance: StrictBool | None = None
    run_performance: StrictBool | None = None


class BatchBody(_Body):
    """Up to a hundred evaluations."""

    batch_id: str
    tasks: list[EvaluateBody] = Field(min_length=1, max_length=100)


class WorkflowPayload(EvaluateBody):
    """An evaluation that may leave its name to the task of the workflow."""

    task_id: str = Field("", max_length=100)


class WorkflowBody(_Body):
    """A task of a workflow: of ``kernelbench``, whose payload is an evaluation."""

    workflow: Served = "kernelbench"
    payload: WorkflowPayload
    task_id: str | None = Field(None, max_length=100)
    force_refresh: StrictBool = False

    def evaluation(self) -> EvaluateBody:
        """Return the evaluation, under a new name where it has none."""
        name = self.task_id or self.payload.task_id or uuid4().hex
        fresh = self.force_refresh or self.payload.force_refresh
        return self.payload.model_copy(update={"task_id": name, "force_refresh": fresh})


def add_kernelgym(app: FastAPI, service: Service, device: str) -> None:
    """Add the routes; evaluations run on ``device``."""

    @app.post("/evaluate", tags=["kernelgym"])
    async def evaluate(body: Annotated[EvaluateBody, pages.EVALUATE], request: Request) -> dict[str, Any]:
        """Submit an evaluation and wait for the result, as long as the task's timeout allows."""
        return await _evaluated(service, body, device, request)

    @app.post("/workflow/submit", tags=["kernelgym"])
    async def submit_workflow(body: Annotated[WorkflowBody, pages.WORKFLOW], request: Request) -> dict[str, Any]:
        """Submit a task of the workflow kernelbench and wait for the result."""
        return _of_workflow(await _evaluated(service, body.evaluation(), device, request))

    @app.get("/workflow/results/{task_id}", tags=["kernelgym"], responses=MISSING)
    async def workflow_results(task_id: str) -> dict[str, Any]:
        """Return the result of a finished task as /workflow/submit does."""
        return _of_workflow(_finished(service, task_id))

    @app.get("/workers/status", tags=["kernelgym"])
    async def workers_status() -> dict[str, Any]:
        """Return the workers by name."""
        return {
            name: {
                "device": ", ".join(worker.kinds) if worker.kinds is not None else device,
                "status": "online" if worker.able else "offline",
                "last_heartbeat": _iso(time.time() if worker.kind == "local" else worker.seen),
                "node_id": name,
                "hostname": "",
            }
            for name, worker in service.workers.items()
        }

    @app.get("/queue/status", tags=["kernelgym"])
    async def queue_status() -> dict[str, Any]:
        """Return how many tasks wait; there is one queue for all workers."""
        waiting = service.store.counts()["state"].get("queued", 0)
        return {"pending": waiting, "pending_by_prefix": {"drkernel": waiting}, "worker_queues": {}}

    @app.post("/evaluate/batch", tags=["kernelgym"])
    async def batch(body: Annotated[BatchBody, pages.BATCH], request: Request) -> dict[str, Any]:
        """Submit many evaluations and wait for all."""
        ids = [await _submit(service, task, device, _client(request)) for task in body.tasks]
        jobs = await asyncio.gather(*(service.wait(i, float(t.timeout)) for i, t in zip(ids, body.tasks, strict=True)))
        results = [
            response(service, job, task.task_id) for job, task in zip(jobs, body.tasks, strict=True) if job is not None
        ]
        completed = sum(result["status"] == "completed" for result in results)
        return {
            "batch_id": body.batch_id,
            "total_tasks": len(body.tasks),
            "completed_tasks": completed,
            "failed_tasks": len(results) - completed,
            "results": results,
            "batch_status": "completed",
        }

    @app.get("/status/{task_id}", tags=["kernelgym"], responses=MISSING)
    async def status(task_id: str) -> dict[str, Any]:
        """Return the state of a task."""
        job = _named(service, task_id)
        answer = response(service, job, task_id)
        return {
            "task_id": task_id,
            "status": answer["status"],
            "progress": 100.0 if job.state == "done" else 0.0,
            "assigned_device": job.device,
            "error_message": answer["error_message"],
        }

    @app.get("/results/{task_id}", tags=["kernelgym"], responses=MISSING)
    async def results(task_id: str) -> dict[str, Any]:
        """Return the result of a finished task."""
        return _finished(service, task_id)

    @app.delete("/tasks/{task_id}", tags=["kernelgym"], responses=MISSING)
    async def cancel(task_id: str) -> dict[str, str]:
        """Cancel a queued task."""
        job = _named(service, task_id)
        if not await service.cancel(job.id):
            raise HTTPException(404, f"Task {task_id} cannot be cancelled")
        return {"message": f"Task {task_id} cancelled successfully"}


def _client(request: Request) -> str:
    return (request.client.host if request.client else "?") + " (kernelgym)"


def _named(service: Service, task_id: str) -> JobView:
    job_id = service.store.alias(task_id)
    job = service.store.get(job_id) if job_id is not None else None
    if job is None:
        raise HTTPException(404, f"Task {task_id} not found")
    return job


def _finished(service: Service, task_id: str) -> dict[str, Any]:
    """Return the result of a task. Raises a 404 for one without."""
    job = _named(service, task_id)
    if job.state != "done":
        raise HTTPException(404, f"Task {task_id} has no result yet")
    return response(service, job, task_id)


def _of_workflow(answer: dict[str, Any]) -> dict[str, Any]:
    """Return a result in the form of the workflow's routes."""
    kept = ("task_id", "status", "error_message", "error_code", "submitted_at", "completed_at")
    return {**{key: answer[key] for key in kept}, "result": {k: v for k, v in answer.items() if k != "status"}}


async def _evaluated(service: Service, body: EvaluateBody, device: str, request: Request) -> dict[str, Any]:
    """Submit an evaluation and wait for its result, as long as its timeout allows."""
    job_id = await _submit(service, body, device, _client(request))
    job = await service.wait(job_id, float(body.timeout))
    assert job is not None
    return response(service, job, body.task_id)


async def _submit(service: Service, body: EvaluateBody, device: str, client: str) -> str:
    try:
        request = to_request(body, device)
    except ValidationError as error:
        raise HTTPException(400, str(error.errors()[0]["msg"])) from None
    (job_id,) = await service.submit(
        [request],
        client=client,
        priority=PRIORITIES[body.priority],
        fresh=body.force_refresh,
        names=[body.task_id],
    )
    return job_id


def to_request(body: EvaluateBody, device: str) -> EvalRequest:
    """Translate the evaluation to our request. Other entry points are given their usual names at the end of the
    source."""
    reference, candidate = body.reference_code, body.kernel_code
    if body.entry_point != "Model":
        reference += f"\n\nModel = {body.entry_point}\n"
        candidate += f"\n\nModelNew = {body.entry_point}New\n"
    timing = body.run_performance if body.run_performance is not None else body.measure_performance
    return EvalRequest(
        task=Task(
            id=f"kernelgym/{body.uuid}" if body.uuid else "kernelgym",
            level=0,
            reference=reference,
            provenance=Provenance(source="kernelgym"),
        ),
        candidate=candidate,
        settings=EvalSettings(
            device=device,
            profile=None,
            baseline="compile" if "compile" in (body.reference_backend or "") else "eager",
            checks=body.num_correct_trials,
            trials=body.num_perf_trials,
            deadline_s=float(body.timeout),
            timing=timing is not False,
        ),
    )


def response(service: Service, job: JobView, task_id: str) -> dict[str, Any]:
    """Return a job in the form that KernelGYM's clients read. Runtimes are in milliseconds."""
    verdict = service.store.verdict(job.id) if job.state == "done" else None
    answer: dict[str, Any] = {
        "task_id": task_id,
        "status": {"queued": "pending", "leased": "processing", "cancelled": "cancelled"}.get(job.state, "completed"),
        **dict.fromkeys((*_OUTCOME, "metadata", "error_message", "error_code")),
        "submitted_at": _iso(job.submitted),
        "completed_at": _iso(job.finished),
        "processing_time": job.finished - job.started if job.finished and job.started else None,
    }
    if verdict is not None:
        answer |= {**outcome(verdict), "metadata": metadata(verdict), "error_code": _CODES.get(verdict.status)}
    return answer


_OUTCOME = ("compiled", "correctness", "decoy_kernel", "reference_runtime", "kernel_runtime", "speedup")
_CODES = {
    "compile_error": "COMPILATION_ERROR", "incorrect": "CORRECTNESS_ERROR", "runtime_error": "RUNTIME_ERROR",
    "timeout": "TIMEOUT_ERROR", "out_of_memory": "RESOURCE_ERROR", "hack": "VALIDATION_ERROR",
    "unsupported": "VALIDATION_ERROR", "invalid_request": "VALIDATION_ERROR", "infra_error": "SYSTEM_ERROR",
}  # fmt: skip


def _iso(seconds: float | None) -> str | None:
    return datetime.fromtimestamp(seconds, UTC).isoformat() if seconds is not None else None
