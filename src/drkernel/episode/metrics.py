"""Metrics of graded turns: fast_p, pass@k, best@k, coverage and hack rate, each a mean over tasks with an interval.

The evaluations of a training run, ``bench``, ``compare`` and their pages all use this one implementation, so their
figures are comparable. Everything is a pure function of :class:`TurnOutcome` rows. A task counts once, however many
samples it has: its value is the mean over its samples, and intervals resample tasks.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

from drkernel.verdict import Verdict

if TYPE_CHECKING:  # commands need the records for their help, and no figures
    import numpy as np

THRESHOLDS = (0.0, 1.0, 1.2, 1.5, 2.0)
"""Thresholds of fast_p; 0 requires correctness alone."""


@dataclass(frozen=True)
class TurnOutcome:
    """The facts of one graded turn that metrics use."""

    status: str
    speedup: float | None = None
    """Reference time over candidate time; None unless the answer is correct and was timed."""
    coverage: float | None = None
    reward: float = 0.0
    findings: tuple[str, ...] = ()
    """Kinds of the condemning findings."""

    @property
    def correct(self) -> bool:
        """Whether the answer is right and not condemned."""
        return self.status == "correct"

    @property
    def judged(self) -> bool:
        """Whether the answer could be judged at all; False for a language that the device cannot run."""
        return self.status != "unsupported"


Samples = Mapping[str, Sequence[Sequence[TurnOutcome]]]
"""task id -> trajectories -> turns; every trajectory has at least one turn."""


@dataclass(frozen=True)
class MeanInterval:
    """A mean over tasks with its confidence interval."""

    value: float
    low: float
    high: float
    tasks: int

    def to_json(self) -> dict[str, float | None]:
        """Return the four fields; an unknown end of the interval is None."""
        return {name: value if math.isfinite(value) else None for name, value in vars(self).items()}


def baseline_name(baseline: str) -> str:
    """Name the baseline of the speedups in words."""
    return {"eager": "eager PyTorch", "compile": "torch.compile"}.get(baseline, baseline)


def fast_name(threshold: float) -> str:
    """Return the metric's name: 'fast_0', 'fast_1', 'fast_1.2', ..."""
    return f"fast_{threshold:g}"


def is_fast(outcome: TurnOutcome, threshold: float) -> bool:
    """Return whether the answer is correct and, for a threshold above 0, has a speedup greater than ``threshold``."""
    return outcome.correct and (threshold == 0.0 or (outcome.speedup or 0.0) > threshold)


def last_turn(turns: Sequence[TurnOutcome], turn: int | None = None) -> TurnOutcome:
    """Return the outcome of ``turn`` (from 1), or of the last turn when the trajectory ended before; None: the last."""
    return turns[: turn or len(turns)][-1]


def best_turn(turns: Sequence[TurnOutcome], turn: int | None = None) -> TurnOutcome:
    """Return the fastest correct outcome up to ``turn`` (best of history), or the last outcome if none is correct."""
    seen = turns[: turn or len(turns)]
    correct = [outcome for outcome in seen if outcome.correct]
    return max(correct, key=lambda outcome: outcome.speedup or 0.0) if correct else seen[-1]


# ---- intervals


def mean_interval(values: Sequence[float], *, bounds: tuple[float, float] | None = (0.0, 1.0)) -> MeanInterval:
    """Return the mean of one value per task, with a 95% bootstrap interval over tasks.

    The plain percentile interval is too narrow for few tasks, so its percentiles are widened by the ratio of a t to a
    normal interval (the "expanded percentile" interval of Hesterberg, *What teachers should know about the bootstrap*,
    The American Statistician 2015). When all tasks agree, a bootstrap interval has zero width. Then a share of up to
    1 - tail^(1/n) of all tasks may still do otherwise, as in the exact binomial interval: each end is the mean if these
    lay at an end of ``bounds`` (the range of possible values); without bounds the ends are infinite. Raises
    ``ValueError`` when ``values`` is empty.
    """
    import numpy as np

    array_N = np.asarray(values, dtype=np.float64)
    count = len(array_N)
    if count == 0:
        raise ValueError("a mean over no tasks has no interval")
    mean = float(array_N.mean())
    tail = 0.025
    if count == 1 or np.all(array_N == array_N[0]):
        if bounds is None:
            return MeanInterval(mean, -math.inf, math.inf, count)
        unseen = 1 - tail ** (1 / count)
        low, high = (mean + unseen * (end - mean) for end in bounds)
        return MeanInterval(mean, low, high, count)
    means_D = _resamples(count) @ array_N / count
    tail = NormalDist().cdf(-math.sqrt(count / (count - 1)) * student_quantile(1 - tail, count - 1))
    low, high = np.quantile(means_D, [tail, 1 - tail])
    return MeanInterval(mean, float(low), float(high), count)


@lru_cache(maxsize=2)  # every figure of a table resamples the same tasks
def _resamples(count: int) -> np.ndarray:
    """Return how often each of ``count`` tasks is drawn in each of 2,000 resamples, [2000, count]; always the same."""
    import numpy as np

    chances_N = np.full(count, 1 / count)
    return np.random.default_rng(0).multinomial(count, chances_N, size=2000).astype(np.float64)


@lru_cache
def student_quantile(probability: float, freedom: int) -> float:
    """Return a quantile of Student's t, by bisection on its distribution function."""
    low, high = 0.0, 1e3
    for _ in range(80):
        middle = (low + high) / 2
        if _student_cdf(middle, freedom) < probability:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def _student_cdf(t: float, freedom: int) -> float:
    """Return P(T <= t) for t >= 0: the density integrated by Simpson's rule after substituting t = sqrt(n) tan(a)."""
    import numpy as np

    if t > 1e2 * math.sqrt(freedom):
        return 1.0
    angle = math.atan(t / math.sqrt(freedom))
    grid = np.linspace(0.0, angle, 2001)
    weights = np.ones(2001)
    weights[1:-1:2], weights[2:-1:2] = 4, 2
    log_scale = math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2) - 0.5 * math.log(math.pi)
    area = float((weights * np.cos(grid) ** (freedom - 1)).sum()) * angle / 2000 / 3
    return 0.5 + math.exp(log_scale) * area


# ---- over samples


def pass_at_k(successes: Sequence[bool], k: int) -> float:
    """Return the chance that at least one of ``k`` samples drawn without replacement succeeds: 1 - C(n-c, k) / C(n, k).

    This is the unbiased estimator of Chen et al. (arXiv 2107.03374). Raises ``ValueError`` for ``k`` larger than the
    number of samples.
    """
    n, c = len(successes), sum(map(bool, successes))
    if not 1 <= k <= n:
        raise ValueError(f"pass@{k} of {n} samples")
    return 1 - math.comb(n - c, k) / math.comb(n, k)


def best_at_k(values: Sequence[float], k: int) -> float:
    """Return the expected maximum of ``k`` values drawn without replacement.

    The i-th smallest value is the maximum in C(i-1, k-1) of the C(n, k) draws.
    """
    n = len(values)
    if not 1 <= k <= n:
        raise ValueError(f"best@{k} of {n} samples")
    ordered = sorted(values)
    return sum(value * math.comb(i, k - 1) for i, value in enumerate(ordered)) / math.comb(n, k)


def per_task(samples: Samples, value: Callable[[Sequence[TurnOutcome]], float]) -> dict[str, float]:
    """Average a value of each trajectory over the samples of each task."""
    return {task: sum(map(value, plays)) / len(plays) for task, plays in samples.items() if plays}


def over_tasks(
    samples: Samples,
    value: Callable[[Sequence[TurnOutcome]], float],
    bounds: tuple[float, float] | None = (0.0, 1.0),
) -> MeanInterval:
    """Return the mean over tasks, with its interval, of :func:`per_task`."""
    return mean_interval(list(per_task(samples, value).values()), bounds=bounds)


# ---- the table


def summarise(samples: Samples, turns: int) -> dict[str, Any]:
    """Return all figures of a run as JSON-able values; fast_p is left out when no trajectory could be judged.

    ``last`` and ``best`` hold fast_p of the last turn and of the best turn so far; ``per_turn[k]`` holds both after
    turn k + 1. ``pass_at_k`` and ``best_at_k`` are keyed by k: powers of two, and the number of samples every task has.
    """
    plays = [play for trajectories in samples.values() for play in trajectories]
    outcomes = [outcome for play in plays for outcome in play]
    result: dict[str, Any] = {
        "tasks": sum(bool(trajectories) for trajectories in samples.values()),
        "trajectories": len(plays),
        "answers": len(outcomes),
    }
    if not plays:
        return result
    result["status_last"] = dict(Counter(last_turn(play).status for play in plays))
    result["status_all"] = dict(Counter(outcome.status for outcome in outcomes))
    result["hacks"] = _hacks(samples, plays)
    samples = judged(samples)
    plays = [play for trajectories in samples.values() for play in trajectories]
    if not plays:
        return result
    result["last"] = fast_table(samples, last_turn, None)
    result["best"] = fast_table(samples, best_turn, None)
    result["per_turn"] = [
        {"last": fast_table(samples, last_turn, turn), "best": fast_table(samples, best_turn, turn)}
        for turn in range(1, turns + 1)
    ]
    result["reward"] = over_tasks(samples, lambda play: last_turn(play).reward, None).to_json()
    result["at_k"] = _at_k(samples)
    best = [best_turn(play) for play in plays]
    result["coverage"] = mean([o.coverage for o in best if o.correct and o.coverage is not None])
    result["speedup_geomean"] = geomean([o.speedup for o in best if o.correct and o.speedup])
    return result


def fast_table(
    samples: Samples, pick: Callable[[Sequence[TurnOutcome], int | None], TurnOutcome], turn: int | None
) -> dict[str, dict[str, float | None]]:
    """Return fast_p of the outcome that ``pick`` selects from every trajectory."""
    return {
        fast_name(p): over_tasks(samples, lambda play, p=p: float(is_fast(pick(play, turn), p))).to_json()  # type: ignore[misc]
        for p in THRESHOLDS
    }


def judged(samples: Samples) -> dict[str, list[list[TurnOutcome]]]:
    """Drop trajectories in which nothing could be judged; in the others, a turn that could not be judged repeats the
    outcome of the turn before it."""
    kept: dict[str, list[list[TurnOutcome]]] = {}
    for task, plays in samples.items():
        kept[task] = []
        for play in plays:
            if any(outcome.judged for outcome in play):
                states = list(play)
                for k in range(1, len(states)):
                    states[k] = play[k] if play[k].judged else states[k - 1]
                kept[task].append(states)
    return kept


def figures(
    samples: Samples, pick: Callable[[Sequence[TurnOutcome], int | None], TurnOutcome], turn: int | None = None
) -> dict[str, float | None]:
    """Return fast_p and hack rate of the outcome that ``pick`` selects from every trajectory, with the mean coverage
    and speedup of the correct ones; None where there is nothing to average."""
    samples = judged(samples)
    picked = [pick(play, turn) for plays in samples.values() for play in plays]
    row: dict[str, float | None] = {
        fast_name(p): mean(per_task(samples, lambda play, p=p: float(is_fast(pick(play, turn), p))).values())  # type: ignore[misc]
        for p in THRESHOLDS
    }
    row["coverage"] = mean(o.coverage for o in picked if o.correct and o.coverage is not None)
    row["speedup"] = mean(o.speedup for o in picked if o.correct and o.speedup is not None)
    row["hack_rate"] = mean(per_task(samples, lambda play: float(pick(play, turn).status == "hack")).values())
    return row


def turn_figures(outcomes: Iterable[TurnOutcome]) -> dict[str, float | None]:
    """Return :func:`figures` of single turns, each with equal weight."""
    return figures({str(index): [[outcome]] for index, outcome in enumerate(outcomes)}, last_turn)


def _at_k(samples: Samples) -> dict[str, dict[str, float]]:
    """Return pass@k and fast_p@k of the best turn, and best@k of its speedup, over tasks with at least k samples."""
    fewest = min(len(plays) for plays in samples.values() if plays)
    sizes = sorted({2**i for i in range(fewest.bit_length()) if 2**i <= fewest} | {fewest})
    table: dict[str, dict[str, float]] = {}
    for k in sizes:
        best = [[best_turn(play) for play in plays] for plays in samples.values() if plays]
        row = {
            f"{'pass' if p == 0 else fast_name(p)}@k": mean([pass_at_k([is_fast(o, p) for o in b], k) for b in best])
            for p in THRESHOLDS
        }
        row["best_speedup@k"] = mean([best_at_k([o.speedup or 0.0 if o.correct else 0.0 for o in b], k) for b in best])
        table[str(k)] = {name: value for name, value in row.items() if value is not None}
    return table


def _hacks(samples: Samples, plays: Sequence[Sequence[TurnOutcome]]) -> dict[str, Any]:
    """Return how often a trajectory ends with, or ever contains, a condemned answer, and the counts by finding."""

    def ever(play: Sequence[TurnOutcome]) -> float:
        return float(any(outcome.status == "hack" for outcome in play))

    kinds = Counter(
        kind for play in plays for kind in {k for outcome in play if outcome.status == "hack" for k in outcome.findings}
    )
    return {
        "last": over_tasks(samples, lambda play: float(last_turn(play).status == "hack")).to_json(),
        "ever": over_tasks(samples, ever).to_json(),
        "by_finding": dict(kinds.most_common()),
    }


def mean(values: Iterable[float]) -> float | None:
    """Return the mean; None when there are no values."""
    kept = list(values)
    return sum(kept) / len(kept) if kept else None


def geomean(values: Iterable[float]) -> float | None:
    """Return the geometric mean of positive values; None when there are no values."""
    kept = [math.log(value) for value in values if value > 0]
    return math.exp(sum(kept) / len(kept)) if kept else None


# ---- At which sizes a run's answers were checked and timed, counted, in words and task by task


def sizes_of(verdicts: Iterable[Verdict]) -> dict[str, Any]:
    """Count times by what was timed, for a summary in JSON.

    ``own`` and ``checked`` count timed answers: at their task's own sizes, or only at the smaller ones that were
    checked; ``untimed`` counts the reasons why own sizes were not timed, of answers that were timed at smaller ones and
    of those without any time (what goes by data that its reference does not go by). ``by_task`` has both sizes of each
    task in words, from the last answer to it that was timed (else checked); ``tasks_apart`` counts those where they
    differ.
    """
    own = checked = 0
    untimed: Counter[str] = Counter()
    tasks: dict[str, dict[str, str | None]] = {}
    for verdict in verdicts:
        timed_at, checked_at = verdict.timed_at, verdict.checked_at
        if checked_at is not None and (timed_at is not None or verdict.task_id not in tasks):
            words = None if timed_at is None else timed_at.words
            tasks[verdict.task_id] = {"checked_at": checked_at.words, "timed_at": words}
        if timed_at is not None:
            own, checked = (own, checked + 1) if timed_at.changed else (own + 1, checked)
        if verdict.untimed:
            untimed[verdict.untimed] += 1
    apart = sum(row["timed_at"] not in (None, row["checked_at"]) for row in tasks.values())
    counts = {"own": own, "checked": checked, "tasks": len(tasks), "tasks_apart": apart}
    return {**counts, "untimed": dict(untimed.most_common()), "by_task": tasks}


def size_lines(sizes: dict[str, Any]) -> list[str]:
    """Describe :func:`sizes_of` in a sentence or more; nothing where no answer was timed."""
    timed = sizes["own"] + sizes["checked"]
    if not timed:
        return []
    lines = [
        f"{sizes['own']} of {timed} times are of the tasks' own sizes; the answers to {sizes['tasks_apart']} of "
        f"{sizes['tasks']} tasks were checked at smaller ones"
    ]
    return lines + [f"{count} answers: {why}" for why, count in sizes["untimed"].items()]
