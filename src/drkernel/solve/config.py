"""The terms of a benchmark or a search as one typed config, the model that they name, and the tasks, prepared."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from drkernel.config import Config, ConfigError, load_config
from drkernel.episode.episode import EpisodeConfig
from drkernel.episode.meter import Budget, CallLimits, Prices
from drkernel.episode.program import AgentModel, AgentTerms
from drkernel.episode.records import Answerer, Sampling
from drkernel.gym.device import parse_device
from drkernel.gym.request import OWN_SECONDS
from drkernel.registry import Method, load_plugins
from drkernel.task import Precision, Task, TaskError
from drkernel.tasks.loaders import load_tasks

if TYPE_CHECKING:
    from drkernel.tasks.gate import GateReport


class Endpoint(Config):
    """Address, key and timeout of a hosted model."""

    base_url: str | None = Field(None, description="an OpenAI-compatible endpoint, e.g. http://localhost:8000/v1")
    key_env: str | None = Field(None, description="environment variable with the key; None: OPENAI_API_KEY")
    timeout: float = Field(120.0, gt=0, description="seconds without a byte (or of a program) until a request failed")


class TaskChoice(Config):
    """Selection of tasks from the spec."""

    level: int | None = Field(None, description="only tasks of this level")
    tag: str | None = Field(None, description="only tasks with this tag")
    match: str | None = Field(None, description="only tasks whose id contains this text")
    limit: int | None = Field(None, ge=1, description="number of tasks, taken evenly from the list")
    precision: Precision | None = Field(None, description="declared precision of foreign tasks; None: fp32")
    ill_conditioned: bool = Field(False, description="keep tasks that the gate finds ill-conditioned")


class BenchConfig(Config):
    """Everything that determines a run's results and limits its cost."""

    schema_version: Literal[3] = 3
    kind: Literal["bench", "solve"] = Field("bench", description="a benchmark, or the search for one task's kernel")
    model: str = Field(description="openai:NAME, hf:PATH, command:PROGRAM, agent:COMMAND or script:PATH")
    model_name: str | None = Field(
        None, description="what run and cache call the model; None: as given, with its address"
    )
    endpoint: Endpoint = Endpoint()
    agent: AgentTerms = AgentTerms()
    tasks: str = Field(
        "builtin",
        description="builtin[/levelN], kernelbench:DIR, parquet:FILE, "
        "jsonl:FILE, file:PATH, a path or generated:heldout[:COUNT] (the families that the quickstart holds out)",
    )
    choose: TaskChoice = TaskChoice()
    samples: int = Field(1, ge=1, description="trajectories per task")
    episode: EpisodeConfig = EpisodeConfig()
    breadth: int = Field(1, ge=1, description="answers per turn; the conversation continues from the best by reward")
    context_tokens: int | None = Field(
        None,
        ge=1,
        description="conversation and answer may not exceed this: the context policy shows less, or the trajectory "
        "ends; None asks until the model refuses",
    )
    sampling: Sampling = Sampling()
    judge_seed: int | None = Field(None, description="makes verdicts repeatable; None: secret seeds")
    limits: CallLimits = CallLimits()
    prices: Prices | None = Field(None, description="dollars for a million tokens; with them costs are shown")
    budget: Budget = Budget()
    plugins: tuple[str, ...] = Field((), description="modules of your own to import first, see docs/plugins.md")
    cache: str | None = Field(None, description="SQLite file of replies that runs share; None: in the run")


DEFAULTS: dict[str, dict[str, Any]] = {
    "bench": {"kind": "bench", "episode": {"settings": {"own_seconds": OWN_SECONDS}}},
    "solve": {
        "kind": "solve",
        # sequential test-time scaling as in the paper: 14 turns, at every one the best four so far
        "episode": {"turns": 14, "infra": "skip", "context": {"name": "best", "keep": 4}},
    },
}
"""Defaults of a command that differ from the class's own."""


def load_terms(kind: str, path: Path | None = None, overrides: Iterable[str] = ()) -> BenchConfig:
    """Load a command's config: its defaults, then a YAML file, then ``key=value`` overrides with full or shortened
    keys.

    Unless given, the size profile of built-in tasks is ``tiny`` on a simulated GPU and ``full`` on a real one. Raises
    :class:`ConfigError` for an unknown key, naming similar ones, and for another command's file.
    """
    config = load_config(BenchConfig, path, overrides, base=DEFAULTS[kind], short=True)
    if config.kind != kind:
        raise ConfigError(f"{path} holds the terms of drkernel {config.kind}, not of {kind}")
    load_plugins(config.plugins)
    config = _of_agent(config)
    config.episode.check()
    settings = config.episode.settings
    if "profile" in settings.model_fields_set:
        return config
    sized = settings.model_copy(update={"profile": default_profile(settings.device)})
    return config.model_copy(update={"episode": config.episode.model_copy(update={"settings": sized})})


def _of_agent(config: BenchConfig) -> BenchConfig:
    """Return the terms under which an agent is asked: it has a memory of its own, so that nothing is cut."""
    if not config.model.startswith("agent:"):
        return config
    if config.breadth > 1:
        raise ConfigError("breadth: an agent leads its own conversation; take samples, which are several agents")
    whole = config.episode.model_copy(update={"context": Method(name="full")})
    return config.model_copy(update={"episode": whole})


def default_profile(device: str) -> str:
    """Return 'tiny' for a simulated GPU, 'full' for a real one."""
    return "tiny" if parse_device(device).simulated else "full"


# ---- Opens the client of a model spec


SPECS = "openai:NAME, hf:PATH, command:PROGRAM, agent:COMMAND or script:PATH"


def open_model(
    spec: str,
    *,
    base_url: str | None = None,
    key_env: str | None = None,
    sampling: Sampling = Sampling(),
    timeout: float = 600.0,
    agent: AgentTerms = AgentTerms(),
) -> Answerer:
    """Open the client of a spec.

    ``base_url`` and ``key_env`` (the environment variable that holds the key) apply to ``openai:`` only. Raises
    :class:`ConfigError` naming the problem.
    """
    kind, separator, rest = spec.partition(":")
    if not separator or not rest:
        raise ConfigError(f"cannot read the model {spec!r}; it should be one of: {SPECS}")
    if kind != "openai" and (base_url or key_env):
        raise ConfigError(f"an address and a key are for openai: models; {kind}: takes none")
    if kind == "openai":
        from drkernel.episode.endpoint import OpenAIModel

        return OpenAIModel(rest, base_url=base_url, key_env=key_env, timeout=timeout)
    if kind == "hf":
        from drkernel.rl.model.answerer import LocalModel

        return LocalModel(rest, sampling)
    if kind == "command":
        from drkernel.episode.program import CommandModel

        return CommandModel(rest, timeout=timeout)
    if kind == "agent":
        return AgentModel(rest, agent)
    if kind == "script":
        from drkernel.episode.program import ScriptModel

        return ScriptModel(Path(rest))
    raise ConfigError(f"unknown kind of model {kind!r}; it should be one of: {SPECS}")


# ---- Prepares tasks for a run


GENERATED = 40
"""generated tasks where a spec gives no number"""


@dataclass
class PreparedTasks:
    """The tasks to judge, and those left out."""

    tasks: list[Task] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)
    """task id -> why"""
    objections: dict[str, str] = field(default_factory=dict)
    """of the gate to tasks that are kept all the same: task id -> what"""

    @property
    def hash(self) -> str:
        """Content hash of the tasks in order."""
        return tasks_hash(self.tasks)


def tasks_hash(tasks: Sequence[Task]) -> str:
    """Return the content hash of tasks in order."""
    return hashlib.sha256("".join(task.content_hash for task in tasks).encode()).hexdigest()[:16]


def choose(spec: str, choice: TaskChoice = TaskChoice()) -> list[Task]:
    """Return the tasks of a spec that pass the filters.

    Raises:
        ConfigError: the spec cannot be read, or no task passes.
    """
    try:
        tasks = _generated(spec) or load_tasks(spec, choice.precision)
    except TaskError as error:
        raise ConfigError(str(error)) from error
    chosen = [
        task
        for task in tasks
        if choice.level in (None, task.level)
        and (choice.tag is None or choice.tag in task.tags)
        and (choice.match or "") in task.id
    ]
    if not chosen:
        raise ConfigError(f"none of the {len(tasks)} tasks of {spec} passes the filters")
    if choice.limit is not None and choice.limit < len(chosen):
        chosen = [chosen[i * len(chosen) // choice.limit] for i in range(choice.limit)]
    return chosen


def _generated(spec: str) -> list[Task]:
    """The tasks of ``generated:train[:COUNT]`` or ``generated:heldout[:COUNT]``; none for another spec."""
    found = re.fullmatch(r"generated:(train|heldout)(?::([1-9]\d{0,5}))?", spec)
    if found is None:
        return []
    from drkernel.rl.data.problem import generate_tasks

    return generate_tasks("train" if found[1] == "train" else "heldout", int(found[2] or GENERATED), seed=0)


def prepare(tasks: Iterable[Task], *, profile: str | None, keep_ill_conditioned: bool = False) -> PreparedTasks:
    """Leave out foreign tasks that cannot distinguish a right answer from a wrong one, or do not run at all.

    Built-in tasks, and those with the size profile that is asked for, have already passed the gate. The tasks that are
    kept are as they were loaded: at which sizes each is checked and timed is decided when it is judged.
    """
    from drkernel.tasks.gate import admit_thin  # loads torch

    prepared = PreparedTasks()
    for task in tasks:
        trusted = task.provenance.source in ("builtin", "generated") or profile in task.profiles
        report = None if trusted else admit_thin(task)
        reason = why_not(report) if report is not None else ""
        if reason and not (keep_ill_conditioned and report is not None and report.error is None):
            prepared.left_out[task.id] = reason
        else:
            prepared.tasks.append(task)
            prepared.objections |= {task.id: reason} if reason else {}
    return prepared


def why_not(report: GateReport) -> str:
    """Return why the gate refuses a task, in words; empty when it admits the task."""
    if report.error:
        return report.error
    if report.admitted:
        return ""
    controls = [reason for reason in report.ill_conditioned_by if " " not in reason]
    others = [reason for reason in report.ill_conditioned_by if " " in reason]
    return "ill-conditioned: " + "; ".join(([f"accepts {', '.join(controls)}"] if controls else []) + others)
