"""The benchmark: tasks x samples x turns. Every answer is written as it arrives, and an interrupted run can be resumed.

A run directory holds ``config.yaml`` (the terms, in a form that can be given again), ``resolved.yaml`` (values resolved
at the start: the model's name, the tasks' hash, the tasks left out, the prompts' version), ``tasks.jsonl`` (the tasks
as used), ``prompts/``, ``turns.jsonl`` (one line for every graded answer and every ended trajectory),
``replies.sqlite`` and ``summary.json``.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import Field

from drkernel.base.files import write_atomic
from drkernel.config import Config, ConfigError, differences, dump_config, load_config, read_yaml
from drkernel.episode.chat import Usage
from drkernel.episode.episode import Episode
from drkernel.episode.journal import Journal, JournalEntry, Key, Played, read_journal, read_rows
from drkernel.episode.meter import Meter
from drkernel.episode.metrics import TurnOutcome, summarise
from drkernel.episode.play import play
from drkernel.episode.records import End, Turn
from drkernel.episode.renderer import Prompts
from drkernel.episode.sizes import sizes_of
from drkernel.gym.request import Pool
from drkernel.solve.config import BenchConfig
from drkernel.task import Task

FREE = ("samples", "model", "model_name", "episode.prompts", "cache")
"""Keys that may change when a run is resumed: the number of samples, and the names of model, prompts and cache (but not
what they resolve to). Sections that only limit what may be spent are free too."""
FREE_SECTIONS = ("endpoint.", "limits.", "prices", "budget.")
EXTENDABLE = ("episode.turns", "episode.target")
"""Further keys that may change when a search is resumed: it continues from its last turn."""

Progress = Callable[[JournalEntry], None]
"""Told of every line as it is written."""


class Resolved(Config):
    """The values that the terms of a run resolved to when it started."""

    model: str = Field(description="the model's name: kind, model and address")
    tasks_hash: str = Field("", description="content hash of the tasks in order")
    left_out: dict[str, str] = Field(default_factory=dict, description="tasks that are not judged: id -> why")
    prompts_version: str = ""


@dataclass(frozen=True)
class Bench:
    """The contents of a run directory."""

    config: BenchConfig
    resolved: Resolved
    tasks: list[Task]
    played: Played

    @property
    def keys(self) -> list[Key]:
        """The keys of every trajectory of the run."""
        return [(task.id, sample) for task in self.tasks for sample in range(self.config.samples)]

    @property
    def model(self) -> str:
        """The model's name."""
        return self.resolved.model


class BenchRun:
    """A run directory open for writing; a context manager."""

    def __init__(
        self, directory: Path, config: BenchConfig, resolved: Resolved, tasks: Sequence[Task], prompts: Prompts
    ):
        """Create the directory, or resume the run in it.

        Raises:
            ConfigError: the directory belongs to another run, or another process is writing it.
        """
        self.directory, self.prompts = directory, prompts
        directory.mkdir(parents=True, exist_ok=True)
        self.journal = Journal(directory / "turns.jsonl")
        try:
            self._claim(config, resolved, tasks)
            self.bench = Bench(config, resolved, list(tasks), read_journal(self.journal.path))
        except BaseException:
            self.journal.close()
            raise

    def _claim(self, config: BenchConfig, resolved: Resolved, tasks: Sequence[Task]) -> None:
        path = self.directory / "config.yaml"
        if path.is_file():
            old, before = read_terms(self.directory)
            free = FREE + (EXTENDABLE if config.kind == "solve" else ())
            differing = differences(old, config)
            bound = [item for item in differing if item[0] not in free and not item[0].startswith(FREE_SECTIONS)]
            bound += [
                (name, getattr(before, name), getattr(resolved, name))
                for name in ("model", "tasks_hash", "prompts_version")
                if getattr(before, name) != getattr(resolved, name)
            ]
            if bound:
                said = "; ".join(f"{key} {there!r} there, {here!r} here" for key, there, here in bound)
                raise ConfigError(f"{self.directory} holds a run on other terms ({said}); give another directory")
            if not differing:
                return
        self.prompts.save(self.directory / "prompts")
        write_atomic(self.directory / "tasks.jsonl", "".join(task.model_dump_json() + "\n" for task in tasks))
        write_atomic(self.directory / "resolved.yaml", dump_config(resolved))
        write_atomic(path, dump_config(config))  # last: a directory with a config is whole

    async def run(
        self, meter: Meter, pool: Pool, *, at_once: int = 16, progress: Progress | None = None
    ) -> dict[str, Any]:
        """Play the missing trajectories; return the summary, which is also written to ``summary.json``."""
        gate = asyncio.Semaphore(at_once)
        bench, played = self.bench, self.bench.played
        meter.take_over(turn.reply for key in bench.keys for turn in played.turns(key))
        jobs = [
            self._play(task, sample, meter, pool, gate, progress)
            for sample in range(bench.config.samples)
            for task in bench.tasks
            if bench.config.kind == "solve" or not played.complete((task.id, sample))
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
        config = self.bench.config

        def record(turn: Turn | None = None, end: End | None = None, detail: str = "") -> None:
            entry = JournalEntry(task_id=task.id, sample=sample, turn=turn, end=end, detail=detail)
            self.journal.append(entry)
            self.bench.played.add(entry)
            if progress is not None:
                progress(entry)

        async with gate:
            episode = Episode(pool, config.episode, self.prompts)
            await episode.reset(task, config.judge_seed)
            try:
                trajectory = await play(
                    episode,
                    meter,
                    sampling=config.sampling,
                    sample=sample,
                    breadth=config.breadth,
                    context_tokens=config.context_tokens,
                    done=self.bench.played.turns((task.id, sample)),
                    on_turn=record,
                )
            except asyncio.CancelledError:
                record(end="interrupted")
                raise
            record(end=trajectory.end, detail=trajectory.detail)

    def finish(self) -> dict[str, Any]:
        """Write ``summary.json`` from the results so far, and return it."""
        summary = summary_of(self.bench)
        write_atomic(self.directory / "summary.json", json.dumps(summary, indent=1) + "\n")
        return summary

    def close(self) -> None:
        """Close the files and release the directory."""
        self.journal.close()

    def __enter__(self) -> BenchRun:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def read_terms(directory: Path) -> tuple[BenchConfig, Resolved]:
    """Read the terms of a run directory. Raises :class:`ConfigError` when it is not one, or has an earlier version."""
    path = directory / "config.yaml"
    if not path.is_file():
        raise ConfigError(f"{directory} is not a bench run: it has no config.yaml")
    if read_yaml(path).get("schema_version") != BenchConfig.model_fields["schema_version"].default:
        raise ConfigError(f"{directory} was made by an earlier version of drkernel and cannot be read; run it again")
    return load_config(BenchConfig, path), load_config(Resolved, directory / "resolved.yaml")


def read_bench(directory: Path) -> Bench:
    """Read a run directory, even while it is being written. Raises :class:`ConfigError`."""
    config, resolved = read_terms(directory)
    tasks = [Task.model_validate(row) for row in read_rows(directory / "tasks.jsonl")]
    return Bench(config, resolved, tasks, read_journal(directory / "turns.jsonl"))


def outcomes(bench: Bench, tasks: Sequence[str]) -> dict[str, list[list[TurnOutcome]]]:
    """Return the complete trajectories by task; with breadth, each turn is represented by its best answer by reward."""
    played, result = bench.played, {}
    for task in tasks:
        keys = [(task, sample) for sample in range(bench.config.samples)]
        paths = [played.path(key) for key in keys if played.complete(key)]
        result[task] = [[turn.outcome for turn in path] for path in paths if path]
    return result


def summary_of(bench: Bench) -> dict[str, Any]:
    """Compute metrics and costs, and count what is missing."""
    config, played, keys = bench.config, bench.played, bench.keys
    summary = summarise(outcomes(bench, [task.id for task in bench.tasks]), config.episode.turns)
    made = [turn for turns in played.made.values() for turn in turns.values()]
    usage = sum((turn.reply.usage for turn in made), Usage())
    missing = [key for key in keys if not (played.complete(key) and played.turns(key))]
    settings = config.episode.settings
    summary |= {
        "schema_version": 2,
        "model": bench.model,
        "device": settings.device,
        "baseline": settings.baseline,
        "timing_kind": settings.place.timing,
        "expected_trajectories": len(keys),
        "incomplete": len(missing),
        "incomplete_because": played.why_missing(missing),
        "left_out": len(bench.resolved.left_out),
        "sizes": sizes_of(turn.verdict for turn in made),
        "usage": usage.model_dump(),
        "answers_without_code": sum(turn.code is None for turn in made),
        "cut_off_answers": sum(turn.reply.finish == "length" for turn in made),
        "dollars": None if config.prices is None else config.prices.cost(usage),
        "grading_seconds": sum(turn.verdict.seconds for turn in made),
    }
    return summary
