"""Compares two runs on the same tasks: what differs, by how much, and whether chance explains it.

Everything is paired: a task's value in one run against the same task's value in the other. The interval resamples
tasks. The test flips the signs of the differences (exactly for few tasks, otherwise by seeded draws); it assumes only
that, under the null hypothesis, the two runs are exchangeable task by task.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from drkernel.config import ConfigError
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
)
from drkernel.episode.sizes import sizes_of
from drkernel.solve.bench import Bench, outcomes, read_bench

EXACT = 16
"""Up to so many differing tasks all signs are tried."""
MUST_AGREE = ("device", "baseline", "profile", "time_at")


def compare(
    first: Path, second: Path, *, seed: int = 0, force: bool = False, all_turns: bool = False
) -> dict[str, Any]:
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
        _row(f"{label} {fast_name(p)}", a, b, lambda play, p=p, pick=pick: float(is_fast(pick(play), p)), seed)  # type: ignore[misc]
        for label, pick in (("last turn", last_turn), ("best turn", best_turn))
        for p in THRESHOLDS
    ]
    rows.append(_row("last turn reward", a, b, lambda play: last_turn(play).reward, seed))
    rows.append(_row("hacked at some turn", a, b, lambda play: float(any(o.status == "hack" for o in play)), seed))
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
        "speedup_ratio": _speedup_ratio(a, b, seed),
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


def _row(name: str, a: Runs, b: Runs, value: Callable[[Sequence[TurnOutcome]], float], seed: int) -> dict[str, Any]:
    first, second = per_task(a, value), per_task(b, value)
    differences = [second[task] - first[task] for task in first]
    found = mean_interval(differences, seed=seed, bounds=None if "reward" in name else (-1.0, 1.0))
    return {
        "figure": name,
        "first": float(np.mean(list(first.values()))),
        "second": float(np.mean(list(second.values()))),
        "difference": found.value,
        **{name: value for name, value in found.to_json().items() if name in ("low", "high")},
        "p": sign_flip_test(differences, seed=seed),
    }


def _speedup_ratio(a: Runs, b: Runs, seed: int) -> dict[str, Any] | None:
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
    found = mean_interval(ratios, seed=seed, bounds=None)
    p = sign_flip_test(ratios, seed=seed)
    ends = {
        name: None if math.isinf(end) else math.exp(end) for name, end in (("low", found.low), ("high", found.high))
    }
    return {"tasks": len(ratios), "ratio": math.exp(found.value), **ends, "p": p}


def sign_flip_test(differences: Sequence[float], *, seed: int = 0, draws: int = 20_000) -> float:
    """Return the two-sided p-value of the mean difference under random sign flips; 1 when nothing differs.

    Exact over all signs for at most ``EXACT`` non-zero differences; otherwise (1 + hits) / (1 + draws), which is never
    smaller than the number of draws supports.
    """
    kept_N = np.asarray([value for value in differences if value != 0.0], dtype=np.float64)
    if len(kept_N) == 0:
        return 1.0
    seen = abs(float(kept_N.sum())) - 1e-12 * float(np.abs(kept_N).sum())
    if len(kept_N) <= EXACT:
        signs = np.asarray(list(itertools.product((-1.0, 1.0), repeat=len(kept_N))))
        return float((np.abs(signs @ kept_N) >= seen).mean())
    rng = np.random.default_rng(seed)
    signs = rng.choice((-1.0, 1.0), size=(draws, len(kept_N)))
    return float((1 + (np.abs(signs @ kept_N) >= seen).sum()) / (1 + draws))
