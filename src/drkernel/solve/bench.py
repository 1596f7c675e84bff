"""The benchmark: tasks x samples x turns. Every answer is written as it arrives, and an interrupted run can be resumed.

A run directory holds ``config.yaml`` (the terms, in a form that can be given again), ``resolved.yaml`` (values resolved
at the start: the model's name, the tasks' hash, the tasks left out, the prompts' version), ``tasks.jsonl`` (the tasks
as used), ``prompts/``, ``turns.jsonl`` (one line for every graded answer and every ended trajectory),
``replies.sqlite`` and ``summary.json``.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import Field

from drkernel.base.files import write_atomic
from drkernel.config import Config, ConfigError, differences, dump_config, load_config, read_yaml
from drkernel.episode.episode import Episode, play
from drkernel.episode.meter import Journal, JournalEntry, Key, Meter, Played, read_journal, read_jsonl
from drkernel.episode.metrics import (
    THRESHOLDS,
    TurnOutcome,
    best_turn,
    fast_name,
    geomean,
    is_fast,
    last_turn,
    mean_interval,
    per_task,
    sizes_of,
    summarise,
)
from drkernel.episode.records import End, Turn, Usage
from drkernel.episode.renderer import Prompts
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
    directory: Path

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
            self.bench = Bench(config, resolved, list(tasks), read_journal(self.journal.path), directory)
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
    tasks = list(read_jsonl(directory / "tasks.jsonl", Task))
    return Bench(config, resolved, tasks, read_journal(directory / "turns.jsonl"), directory)


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


# ---- Compares two runs on the same tasks: what differs, by how much, and whether chance explains it
#
# Everything is paired: a task's value in one run against the same task's value in the other. The interval resamples
# tasks. The test flips the signs of the differences (exactly for few tasks, otherwise by seeded draws); it assumes only
# that, under the null hypothesis, the two runs are exchangeable task by task.


EXACT = 16
"""Up to so many differing tasks all signs are tried."""
MUST_AGREE = ("device", "baseline", "profile", "time_at")


def compare(first: Path, second: Path, *, force: bool = False, all_turns: bool = False) -> dict[str, Any]:
    """Compare run ``second`` minus run ``first``, over the tasks for which both have complete trajectories.

    Of the run with more turns only as many count as the other has, unless ``all_turns``. ``force`` allows runs with
    other baselines, profiles and devices of one kind, but never modelled against measured.

    Raises:
        ConfigError: a directory is not a run, the runs share no task, a shared task's text differs, or the terms of
            grading differ.
    """
    old, new = read_bench(first), read_bench(second)
    before, after = old.config.episode.settings, new.config.episode.settings
    kinds = {settings.place.timing for settings in (before, after)}
    if len(kinds) > 1:
        raise ConfigError(
            f"{first} and {second} hold times of different kinds (modelled, measured): these never compare"
        )
    for name in MUST_AGREE:
        if getattr(before, name) != getattr(after, name) and not force:
            raise ConfigError(
                f"the runs were graded with {name} {getattr(before, name)} and {getattr(after, name)}; --force "
                "compares them all the same"
            )
    hashes = {task.id: task.content_hash for task in old.tasks}
    shared = [task.id for task in new.tasks if task.id in hashes]
    changed = [task.id for task in new.tasks if hashes.get(task.id, task.content_hash) != task.content_hash]
    if changed and not force:
        raise ConfigError(f"task {changed[0]} is not the same in both runs (sizes, tolerance or source differ)")
    left, right = outcomes(old, shared), outcomes(new, shared)
    shared = [task for task in shared if left[task] and right[task]]
    if not shared:
        raise ConfigError(f"{first} and {second} have no complete trajectory of a common task")
    turns = {name: bench.config.episode.turns for name, bench in (("first", old), ("second", new))}
    used = turns if all_turns else dict.fromkeys(turns, min(turns.values()))
    a = {task: [play[: used["first"]] for play in left[task]] for task in shared}
    b = {task: [play[: used["second"]] for play in right[task]] for task in shared}
    rows = [
        _row(f"{label} {fast_name(p)}", a, b, lambda play, p=p, pick=pick: float(is_fast(pick(play), p)))  # type: ignore[misc]
        for label, pick in (("last turn", last_turn), ("best turn", best_turn))
        for p in THRESHOLDS
    ]
    rows.append(_row("last turn reward", a, b, lambda play: last_turn(play).reward))
    rows.append(_row("hacked at some turn", a, b, lambda play: float(any(o.status == "hack" for o in play))))
    sizes = _sizes(old), _sizes(new)
    return {
        "first": {"run": str(first), **_of(old, used["first"], sizes[0])},
        "second": {"run": str(second), **_of(new, used["second"], sizes[1])},
        "tasks": len(shared),
        "timed_at_other_sizes": _timed_apart(sizes, shared),
        "timing_kind": kinds.pop(),
        "device": after.device if after.device == before.device else f"{before.device} and {after.device}",
        "baseline": after.baseline if after.baseline == before.baseline else f"{before.baseline} and {after.baseline}",
        "rows": rows,
        "speedup_ratio": _speedup_ratio(a, b),
    }


Runs = dict[str, list[list[TurnOutcome]]]


def _of(bench: Bench, compared: int, sizes: dict[str, Any]) -> dict[str, Any]:
    """One run's side of a comparison; ``compared``: the number of turns compared."""
    terms = {"turns": bench.config.episode.turns, "turns_compared": compared, "samples": bench.config.samples}
    counts = {name: value for name, value in sizes.items() if name != "by_task"}
    return {"model": bench.model, **terms, "sizes": counts}


def _sizes(bench: Bench) -> dict[str, Any]:
    return sizes_of(turn.verdict for turns in bench.played.made.values() for turn in turns.values())


def _timed_apart(both: Sequence[dict[str, Any]], shared: Sequence[str]) -> list[str]:
    """Tasks whose answers were timed at other sizes in one run than in the other."""
    there, here = (sizes["by_task"] for sizes in both)
    pairs = {task: {run.get(task, {}).get("timed_at") for run in (there, here)} - {None} for task in shared}
    return [task for task, words in pairs.items() if len(words) > 1]


def _row(name: str, a: Runs, b: Runs, value: Callable[[Sequence[TurnOutcome]], float]) -> dict[str, Any]:
    import numpy as np  # not for the help of commands

    first, second = per_task(a, value), per_task(b, value)
    differences = [second[task] - first[task] for task in first]
    found = mean_interval(differences, bounds=None if "reward" in name else (-1.0, 1.0))
    return {
        "figure": name,
        "first": float(np.mean(list(first.values()))),
        "second": float(np.mean(list(second.values()))),
        "difference": found.value,
        **{name: value for name, value in found.to_json().items() if name in ("low", "high")},
        "p": sign_flip_test(differences),
    }


def _speedup_ratio(a: Runs, b: Runs) -> dict[str, Any] | None:
    """Return the geometric mean of (second speedup / first) over tasks solved by both, best of all samples and
    turns."""
    ratios = []
    for task in a:
        best = [
            geomean([max((best_turn(play).speedup or 0.0 for play in plays), default=0.0)])
            for plays in (a[task], b[task])
        ]
        if best[0] and best[1]:
            ratios.append(math.log(best[1] / best[0]))
    if not ratios:
        return None
    found = mean_interval(ratios, bounds=None)
    p = sign_flip_test(ratios)
    ends = {
        name: None if math.isinf(end) else math.exp(end) for name, end in (("low", found.low), ("high", found.high))
    }
    return {"tasks": len(ratios), "ratio": math.exp(found.value), **ends, "p": p}


def sign_flip_test(differences: Sequence[float], *, draws: int = 20_000) -> float:
    """Return the two-sided p-value of the mean difference under random sign flips; 1 when nothing differs.

    Exact over all signs for at most ``EXACT`` non-zero differences; otherwise (1 + hits) / (1 + draws), which is never
    smaller than the number of draws supports.
    """
    import numpy as np

    kept_N = np.asarray([value for value in differences if value != 0.0], dtype=np.float64)
    if len(kept_N) == 0:
        return 1.0
    seen = abs(float(kept_N.sum())) - 1e-12 * float(np.abs(kept_N).sum())
    if len(kept_N) <= EXACT:
        signs = np.asarray(list(itertools.product((-1.0, 1.0), repeat=len(kept_N))))
        return float((np.abs(signs @ kept_N) >= seen).mean())
    rng = np.random.default_rng(0)
    signs = rng.choice((-1.0, 1.0), size=(draws, len(kept_N)))
    return float((1 + (np.abs(signs @ kept_N) >= seen).sum()) / (1 + draws))
