"""The benchmark: tasks x samples x turns, every answer written as it comes, taken up again after any interruption.

A run directory holds ``config.yaml`` (all that decides the results), ``tasks.jsonl`` (the tasks as they were used),
``prompts/``, ``attempts.jsonl`` (a line each for every graded answer and every ended trajectory), ``replies.sqlite``
and ``summary.json``.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError

from drkernel.config import Config, ConfigError, dump_config, load_config
from drkernel.episode.chat import Usage
from drkernel.episode.journal import Journal, read_rows
from drkernel.episode.meter import Meter, Prices
from drkernel.episode.metrics import Outcome, summarise
from drkernel.episode.renderer import Prompts
from drkernel.gym.request import Pool
from drkernel.solve.refine import COMPLETE, Attempt, End, RefineConfig, Refinement, Trajectory
from drkernel.task import Task

Key = tuple[str, int]
"""(task id, sample)"""


class BenchConfig(Config):
    """Everything that decides a run's results."""

    schema_version: Literal[1] = 1
    kind: Literal["bench", "solve"] = Field("bench", description="a benchmark, or the search for one task's kernel")
    model: str = Field(description="name of the model: kind, model and address")
    tasks: str = Field(description="the task spec, with the filters that were applied")
    tasks_hash: str = Field("", description="content hash of the tasks in order")
    left_out: dict[str, str] = Field(default_factory=dict, description="tasks that are not judged: id -> why")
    samples: int = Field(1, ge=1, description="trajectories a task")
    refine: RefineConfig = RefineConfig()
    prompts: str = Field("full", description="name of the prompts; the texts lie in prompts/")
    prompts_version: str = ""
    prices: Prices | None = None
    judge_seed: int | None = Field(None, description="makes verdicts repeatable; None: secret seeds")


class Ended(Config):
    """The journal's line for a trajectory that ended."""

    task_id: str
    sample: int
    end: End
    detail: str = ""


@dataclass
class BenchState:
    """A run as its journal tells it."""

    attempts: dict[Key, dict[tuple[int, int], Attempt]] = field(default_factory=dict)
    ended: dict[Key, Ended] = field(default_factory=dict)

    def add(self, row: Attempt | Ended) -> None:
        """One line; a later one of the same place replaces the earlier."""
        key = (row.task_id, row.sample)
        if isinstance(row, Attempt):
            self.attempts.setdefault(key, {})[row.position] = row
        else:
            self.ended[key] = row

    def turns(self, key: Key) -> list[Attempt]:
        """The attempts of one trajectory that carry a grade, in order."""
        made = self.attempts.get(key, {})
        return [made[position] for position in sorted(made) if made[position].reward is not None]

    def complete(self, key: Key) -> bool:
        """Whether a trajectory needs nothing more."""
        ended = self.ended.get(key)
        return ended is not None and ended.end in COMPLETE


FREE = ("prompts", "samples", "prices")
"""What may change when a run is taken up again: the prompts' name (their version decides), the number of samples, and
prices (with all their fields)."""
EXTENDABLE = ("refine.turns", "refine.target")
"""What may change besides when a search is taken up again: it goes on from the attempts that are there."""

Progress = Callable[[Attempt | Ended], None]
"""Told of every line as it is written."""


class BenchRun:
    """A run directory, open for writing. A context manager."""

    def __init__(self, directory: Path, config: BenchConfig, tasks: Sequence[Task], prompts: Prompts):
        """Make the directory or take it up again.

        Raises:
            ConfigError: another run lies there, or another process writes it.
        """
        self.directory, self.config, self.tasks, self.prompts = directory, config, list(tasks), prompts
        directory.mkdir(parents=True, exist_ok=True)
        self.journal = Journal(directory / "attempts.jsonl")
        try:
            self._claim()
            self.state = read_state(directory)
        except BaseException:
            self.journal.close()
            raise

    def _claim(self) -> None:
        path = self.directory / "config.yaml"
        if path.is_file():
            differing = differences(load_config(BenchConfig, path), self.config)
            free = FREE + (EXTENDABLE if self.config.kind == "solve" else ())
            bound = [
                f"{key} {old!r} there, {new!r} here"
                for key, old, new in differing
                if not (key in free or key.startswith("prices."))
            ]
            if bound:
                raise ConfigError(
                    f"{self.directory} holds a run on other terms ({'; '.join(bound)}); give another directory"
                )
            if not differing:
                return
        self.prompts.save(self.directory / "prompts")
        _write(self.directory / "tasks.jsonl", "".join(task.model_dump_json() + "\n" for task in self.tasks))
        _write(path, dump_config(self.config))  # last: a directory with a config is whole

    async def run(
        self, meter: Meter, pool: Pool, *, at_once: int = 16, progress: Progress | None = None
    ) -> dict[str, Any]:
        """Play what is missing; the summary, also written to ``summary.json``."""
        gate = asyncio.Semaphore(at_once)
        keys = [(task.id, sample) for task in self.tasks for sample in range(self.config.samples)]
        meter.take_over(attempt.reply for key in keys for attempt in self.state.turns(key))
        jobs = [
            self._play(task, sample, meter, pool, gate, progress)
            for sample in range(self.config.samples)
            for task in self.tasks
            if self.config.kind == "solve" or not self.state.complete((task.id, sample))
        ]
        try:
            async with asyncio.TaskGroup() as group:
                for job in jobs:
                    group.create_task(job)
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None
        return self.finish()

    async def _play(
        self, task: Task, sample: int, meter: Meter, pool: Pool, gate: asyncio.Semaphore, progress: Progress | None
    ) -> None:
        key = (task.id, sample)

        def record(row: Attempt | Ended) -> None:
            self.journal.append(row.model_dump_json())
            self.state.add(row)
            if progress is not None:
                progress(row)

        async with gate:
            done = self.state.turns(key)
            refine = Refinement(
                task, meter, pool, self.prompts, self._terms(), sample=sample, done=done, on_attempt=record
            )
            try:
                played: Trajectory = await refine.run()
            except asyncio.CancelledError:
                record(Ended(task_id=task.id, sample=sample, end="interrupted"))
                raise
            record(Ended(task_id=task.id, sample=sample, end=played.end, detail=played.detail))

    def _terms(self) -> RefineConfig:
        refine = self.config.refine
        settings = refine.settings.model_copy(update={"seed": self.config.judge_seed})
        return refine.model_copy(update={"settings": settings})

    def finish(self) -> dict[str, Any]:
        """Write ``summary.json`` from what is there so far."""
        summary = summary_of(self.config, [task.id for task in self.tasks], self.state)
        _write(self.directory / "summary.json", json.dumps(summary, indent=1) + "\n")
        return summary

    def close(self) -> None:
        """Let the directory go."""
        self.journal.close()

    def __enter__(self) -> BenchRun:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def differences(old: BenchConfig, new: BenchConfig) -> list[tuple[str, Any, Any]]:
    """(key, old value, new value) of what differs between two configs."""
    before, after = _flat(old.model_dump(mode="json")), _flat(new.model_dump(mode="json"))
    return [
        (key, before.get(key), after.get(key))
        for key in dict.fromkeys([*before, *after])
        if before.get(key) != after.get(key)
    ]


def _flat(value: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, item in value.items():
        flat |= _flat(item, f"{prefix}{key}.") if isinstance(item, Mapping) else {f"{prefix}{key}": item}
    return flat


def read_state(directory: Path) -> BenchState:
    """The journal of a run directory. Raises :class:`ConfigError` naming a line that is none."""
    state = BenchState()
    path = directory / "attempts.jsonl"
    for number, row in enumerate(read_rows(path), 1):
        try:
            state.add(Ended.model_validate(row) if "end" in row else Attempt.model_validate(row))
        except ValidationError as error:
            raise ConfigError(f"{path}, line {number}: {error.errors()[0]['msg']}") from None
    return state


def read_bench(directory: Path) -> tuple[BenchConfig, list[Task], BenchState]:
    """A run directory for reading, also while it is being written. Raises :class:`ConfigError`."""
    config = directory / "config.yaml"
    if not config.is_file():
        raise ConfigError(f"{directory} is not a bench run: it has no config.yaml")
    tasks = [Task.model_validate(row) for row in read_rows(directory / "tasks.jsonl")]
    return load_config(BenchConfig, config), tasks, read_state(directory)


def outcome_of(attempt: Attempt) -> Outcome:
    """An attempt as metrics see it."""
    return Outcome(
        status=attempt.verdict.status,
        speedup=attempt.speedup,
        coverage=attempt.verdict.coverage,
        reward=attempt.reward or 0.0,
        findings=tuple(finding.kind for finding in attempt.verdict.findings if finding.severity == "cheat"),
    )


def outcomes(tasks: Sequence[str], samples: int, state: BenchState) -> dict[str, list[list[Outcome]]]:
    """Complete trajectories by task; with breadth, a turn is its best answer by reward."""
    result: dict[str, list[list[Outcome]]] = {}
    for task in tasks:
        keys = [(task, sample) for sample in range(samples)]
        result[task] = [_turns(state.turns(key)) for key in keys if state.complete(key) and state.turns(key)]
    return result


def _turns(attempts: Sequence[Attempt]) -> list[Outcome]:
    by_turn: dict[int, list[Attempt]] = {}
    for attempt in attempts:
        by_turn.setdefault(attempt.turn, []).append(attempt)
    return [outcome_of(max(made, key=lambda attempt: attempt.rank)) for _, made in sorted(by_turn.items())]


def summary_of(config: BenchConfig, tasks: Sequence[str], state: BenchState) -> dict[str, Any]:
    """Metrics, costs and what is missing."""
    summary = summarise(outcomes(tasks, config.samples, state), config.refine.turns)
    made = [attempt for attempts in state.attempts.values() for attempt in attempts.values()]
    usage = sum((attempt.reply.usage for attempt in made), Usage())
    keys = [(task, sample) for task in tasks for sample in range(config.samples)]
    missing = [key for key in keys if not (state.complete(key) and state.turns(key))]
    settings = config.refine.settings
    summary |= {
        "schema_version": 1,
        "model": config.model,
        "device": settings.device,
        "baseline": settings.baseline,
        "timing_kind": settings.place.timing,
        "expected_trajectories": len(keys),
        "incomplete": len(missing),
        "incomplete_because": _reasons(missing, state),
        "left_out": len(config.left_out),
        "usage": usage.model_dump(),
        "answers_without_code": sum(attempt.code is None for attempt in made),
        "cut_off_answers": sum(attempt.reply.finish == "length" for attempt in made),
        "dollars": None if config.prices is None else config.prices.cost(usage),
        "grading_seconds": sum(attempt.verdict.seconds for attempt in made),
    }
    return summary


def _reasons(missing: Sequence[Key], state: BenchState) -> dict[str, int]:
    """Why trajectories are missing -> how many, in words; of several details the first is the example."""
    details: dict[str, list[str]] = {}
    for key in missing:
        ended = state.ended.get(key)
        details.setdefault("not played yet" if ended is None else ended.end, []).append(ended.detail if ended else "")
    reasons = {}
    for end, said in details.items():
        joint = ": " if len(set(said)) == 1 else ", e.g. "
        reasons[f"{end}{joint}{said[0][:300]}" if said[0] else end] = len(said)
    return reasons


def _write(path: Path, text: str) -> None:
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_text(text, encoding="utf-8")
    os.replace(temporary, path)
