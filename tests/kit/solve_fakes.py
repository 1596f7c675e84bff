"""A pool that grades by what the text says of itself, a model that answers from a function, and tasks for both."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

from drkernel.episode.episode import EpisodeConfig
from drkernel.episode.meter import Meter, ReplyCache
from drkernel.episode.records import ModelCall, Reply, estimated_usage
from drkernel.episode.renderer import Prompts
from drkernel.gym.request import EvalRequest
from drkernel.solve.bench import BenchRun, Resolved
from drkernel.solve.config import BenchConfig
from drkernel.task import Task
from drkernel.verdict import CandidateError, Finding, Verdict
from verdicts import Judge, speedup_of, verdict_of

REFERENCE = "import torch\n\nROWS = {rows}\n\nclass Model(torch.nn.Module):\n    pass\n"


def make_tasks(count: int) -> list[Task]:
    """Tasks t/0, t/1, ... that differ in their text."""
    return [
        Task(id=f"t/{index}", reference=REFERENCE.format(rows=index + 2), profiles={"tiny": {"ROWS": index + 1}})
        for index in range(count)
    ]


def answer(speed: float | str, words: str = "Here:") -> str:
    """An answer that TextPool grades as correct at ``speed``, or by a word: WRONG, HACK, INFRA, BROKEN."""
    says = f"SPEED = {speed}" if isinstance(speed, float | int) else speed
    return f"{words}\n```python\nclass ModelNew: {says}\n```\n"


class TextPool(Judge):
    """Grades by what the candidate says of itself. ``infra``: how often INFRA fails before it is correct."""

    def __init__(self, infra: int = 10**9) -> None:
        self.requests: list[EvalRequest] = []
        self.infra = infra

    async def evaluate(self, request: EvalRequest) -> Verdict:
        await asyncio.sleep(0)
        self.requests.append(request)
        text, task = request.candidate, request.task.id
        if "HACK" in text:
            finding = Finding(kind="no_custom_kernel", severity="hack", message="No kernel ran.")
            return verdict_of("hack", findings=(finding,), task_id=task)
        if "WRONG" in text:
            return verdict_of("incorrect", task_id=task)
        if "BROKEN" in text:
            error = CandidateError(type="ValueError", message="broken")
            return verdict_of("runtime_error", error=error, task_id=task)
        if "INFRA" in text:
            self.infra -= 1
            if self.infra >= 0:
                return verdict_of("infra_error", task_id=task)
            text = "SPEED = 1.3"
        speed = float(text.partition("SPEED = ")[2].split()[0])
        return verdict_of(speedup=speedup_of(speed), coverage=1.0, task_id=task)


class FunctionModel:
    """Answers with ``function(call)``; an exception that it raises is raised."""

    name = "function:test"

    def __init__(self, function: Callable[[ModelCall], str]):
        self.function = function
        self.calls: list[ModelCall] = []

    async def complete(self, call: ModelCall) -> Reply:
        self.calls.append(call)
        await asyncio.sleep(0)
        text = self.function(call)
        return Reply(text=text, usage=estimated_usage(call, text), model=self.name)

    async def close(self) -> None: ...


TOP = ("samples", "breadth", "context_tokens", "sampling", "prices", "judge_seed", "model_name", "limits")


def bench_config(model: str = FunctionModel.name, kind: str = "bench", **terms: Any) -> BenchConfig:
    """The terms of a run: ``terms`` are the config's own keys, or those of its episode."""
    top = {name: terms.pop(name) for name in TOP if name in terms}
    return BenchConfig(kind=kind, model=model, tasks="t", episode=EpisodeConfig(**terms), **top)


def open_run(directory: Path, config: BenchConfig, tasks: int = 1, prompts: str = "full") -> BenchRun:
    """A run directory of fake tasks."""
    texts = Prompts.load(prompts)
    resolved = Resolved(model=config.model_name or config.model, prompts_version=texts.version)
    return BenchRun(Path(directory), config, resolved, make_tasks(tasks), texts)


def bench(
    directory: Path, function: Callable[[ModelCall], str], pool: TextPool | None = None, tasks: int = 1,
    cache: ReplyCache | None = None, **terms: Any,
) -> tuple[dict[str, Any], FunctionModel]:  # fmt: skip
    """A whole run of fake tasks whose model is a function; its summary and the model."""
    model = FunctionModel(function)
    with open_run(directory, bench_config(**terms), tasks) as run:
        return asyncio.run(run.run(Meter(model, cache=cache), pool or TextPool())), model
