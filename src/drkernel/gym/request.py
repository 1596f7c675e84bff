"""An evaluation request (one task, one candidate, the settings), and the protocol that every pool implements."""

from __future__ import annotations

import ast
import hashlib
from typing import Any, Literal, Protocol

from pydantic import Field, field_validator, model_validator

from drkernel.config import Config
from drkernel.gym.device import Device, parse_device
from drkernel.sim.spec import HOST_PATTERN, known_gpus, known_hosts
from drkernel.task import Task, sized_reference
from drkernel.verdict import Verdict

_HOSTS = f"(@({'|'.join(known_hosts())}|{HOST_PATTERN}))?"
DEVICE_PATTERN = f"^(sim:({'|'.join(known_gpus())}){_HOSTS}|cuda:(0|[1-9][0-9]{{0,2}}))$"
"""The devices that :func:`parse_device` lets candidates be judged on, for schemas that others read."""

OWN_SECONDS = 60.0
"""what :attr:`EvalSettings.own_seconds` is where nothing trains"""


class EvalSettings(Config):
    """The terms of an evaluation. Two requests with equal task, candidate and settings are the same request."""

    device: str = Field(
        "sim:h200",
        description="'sim:GPU' (modelled time, no GPU needed) or 'cuda:N' (measured)",
        json_schema_extra={"pattern": DEVICE_PATTERN},
    )
    profile: str | None = Field(
        "tiny",
        description="size profile that answers are checked at; None takes the task's own sizes, shrunk as far as "
        "checking needs it ('checked_bytes', 'checked_flops'), and so does the default for tasks without it",
    )
    time_at: Literal["own", "checked"] = Field(
        "own",
        description="what is timed: the task's own sizes (profile 'full' where it has one, else its source as it is), "
        "or those that are checked: on a real GPU, without a profile, the task's own",
    )
    checked_bytes: int = Field(
        16 << 20, gt=0, le=1 << 50, description="what one checked call may hold where the task's own sizes are shrunk"
    )
    checked_flops: float = Field(
        3e8, gt=0, description="and how many operations its products may take: a product of 512 cubed fits"
    )
    own_seconds: float = Field(
        0.0,
        ge=0,
        description="what a check at the own sizes with data may be expected to take, of an answer that fails at "
        "smaller ones, on a simulated GPU; 0: none (eval, bench and the final check of solve: 60)",
    )
    baseline: Literal["eager", "compile"] = Field("eager", description="what speedup is measured against")
    checks: int = Field(3, ge=1, le=100, description="calls compared with the oracle, each on fresh inputs")
    trials: int = Field(30, ge=1, le=10_000, description="timed calls on a measuring device, 20 at least")
    deadline_s: float = Field(60.0, gt=0, le=86_400, description="wall seconds after which the candidate is killed")
    memory_bytes: int = Field(4 << 30, gt=0, le=1 << 50, description="memory a candidate's process may take")
    max_output_bytes: int = Field(64 << 10, ge=0, le=1 << 30, description="captured stdout and stderr kept")
    knock_out: bool = Field(True, description="rerun with the candidate's own kernels suppressed")
    other_calls: bool = Field(
        True, description="after right answers also call with NaN and infinity, at other sizes and in the other mode"
    )
    timing: bool = Field(True, description="time (or model) reference and candidate; False checks correctness only")
    lines: bool = Field(False, description="say where modelled time goes by source line, in the verdict's profile")
    seed: int | None = Field(
        None,
        description="None draws every secret seed from the system; a number makes the verdict repeatable (each seed is "
        "then a keyed hash of it and of the request, still out of the candidate's reach)",
    )
    co_judge: str = Field(
        "auto",
        description="simulated GPU that also grades what is right on a real one, so that its findings count: 'auto' "
        "takes the GPU's own card, or the nearest, for Triton; 'sim:GPU' that one; 'off' none",
        json_schema_extra={"pattern": f"^(auto|off|sim:({'|'.join(known_gpus())}){_HOSTS})$"},
    )
    exact: float = Field(
        1.0,
        ge=0,
        le=1,
        description="share of right answers, chosen by a secret seed, that are also compared with the reference in "
        "finite fields, without a tolerance; 0: none",
    )
    exact_above: float | None = Field(
        None, ge=0, description="speedup from which every right answer is compared so, unless 'exact' is 0"
    )
    unsafe_no_checks: bool = Field(
        False, description="research only: accept what a naive grader would; every verdict says so"
    )

    @field_validator("device")
    @classmethod
    def _known(cls, name: str) -> str:
        if parse_device(name).kind == "cpu":
            raise ValueError("no candidate is judged on 'cpu'; use sim:GPU, or cuda:N")
        return name

    @field_validator("co_judge")
    @classmethod
    def _simulated(cls, name: str) -> str:
        if name not in ("auto", "off") and not parse_device(name).simulated:
            raise ValueError(f"the co-judge is a simulated GPU (sim:GPU), auto or off, not {name!r}")
        return name

    @property
    def place(self) -> Device:
        """The device that :attr:`device` names."""
        return parse_device(self.device)

    def for_task(self, task: Task) -> EvalSettings:
        """These settings without a size profile that the task does not have."""
        return self if self.profile in task.profiles else self.model_copy(update={"profile": None})


class EvalRequest(Config):
    """One evaluation to be made."""

    schema_version: Literal[2] = 2
    task: Task
    candidate: str = Field(description="Python source of the answer: defines ModelNew")
    settings: EvalSettings = EvalSettings()

    @model_validator(mode="after")
    def _profile_of_the_task(self) -> EvalRequest:
        """Where no profile is asked for, take the default one only if the task has it."""
        if "profile" not in self.settings.model_fields_set:
            object.__setattr__(self, "settings", self.settings.for_task(self.task))
        return self

    @property
    def key(self) -> str:
        """Content hash (task, candidate, settings): equal keys may share one verdict."""
        digest = hashlib.sha256()
        for part in (self.task.content_hash, self.candidate, self.settings.model_dump_json()):
            encoded = part.encode("utf-8", "surrogatepass")
            digest.update(len(encoded).to_bytes(8, "little"))
            digest.update(encoded)
        return digest.hexdigest()


def objection(request: EvalRequest) -> str | None:
    """The reason why a request can never be granted, as far as that is visible without running anything; else None."""
    try:
        ast.parse(sized_reference(request.task, request.settings.profile))
    except KeyError as error:
        return f"{error.args[0]} (settings.profile null takes the reference as it is)"
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        return f"the reference of task {request.task.id} is not a Python module: {type(error).__name__}: {error}"
    return None


class Pool(Protocol):
    """Something that evaluates candidates: a local machine, a Ray cluster, a server."""

    async def evaluate(self, request: EvalRequest) -> Verdict:
        """Evaluate once. Never raises for what a candidate does; infra trouble is a verdict of that status."""
        ...

    def health(self) -> dict[str, Any]:
        """Slots, busy slots, queue length, counts by status: for people and for metrics."""
        ...

    async def close(self) -> None:
        """Stop and leave no process behind."""
        ...
