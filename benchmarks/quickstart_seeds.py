"""The quickstart over several seeds: gain on held-out tasks, per seed and mean, as a page with a plot.

    drkernel train recipes/quickstart.yaml name=seed0 seed=0 budget_minutes=null
    drkernel train recipes/quickstart.yaml name=seed1 seed=1 budget_minutes=null
    drkernel train recipes/quickstart.yaml name=seed2 seed=2 budget_minutes=null
    python benchmarks/quickstart_seeds.py runs/seed0 runs/seed1 runs/seed2

Reads finished runs and trains nothing. The seed decides the model's first weights, the order of data, and every draw of
sampling; tasks and cold-start data are the same. Writes ``quickstart.md``, ``quickstart.png`` (rewards and held-out
fast_1.2 by step) and ``quickstart_choices.png`` (speedups and launches of held-out answers before and after RL) into
``--results``; the section "Reading" of an existing page is written by hand and kept.
"""

from __future__ import annotations

import json
import math
import re
import statistics
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from drkernel.episode.metrics import student_quantile
from surveys import parser_of, write_page, write_table

FIGURES = ("fast_0", "fast_1", "fast_1.2", "fast_1.5", "fast_2", "coverage", "hack_rate")

SPEEDUPS = (0.0, 0.5, 0.8, 1.0, 1.2, 1.5, 2.0, 3.0, math.inf)
"""ends of the bins of the table of speedups"""

LAUNCH = re.compile(r"\bB=(\d+|triton\.next_power_of_2\(n\)), num_warps=(\d+)\)")
"""a launch as the teacher writes it; the policy has learnt it from there"""


@dataclass(frozen=True)
class Answer:
    """One graded answer to a held-out task."""

    correct: bool
    speedup: float | None
    coverage: float | None
    kernel: str | None
    """what a program of its kernel does: ``block`` of elements, ``tile`` of a product, or ``row``; None where it has no
    launch of the known form"""
    size: int | None
    """of the block, or of the tile's edge"""
    warps: int | None

    @property
    def fast(self) -> bool:
        """Whether it is right and 1.2 times as fast as PyTorch."""
        return self.correct and (self.speedup or 0.0) >= 1.2

    @staticmethod
    def of(turn: dict[str, Any]) -> Answer:
        """Read a turn of a row of ``samples.jsonl``."""
        launch = LAUNCH.search(turn["text"])
        graded = turn["status"] == "correct", turn["speedup"], turn["coverage"]
        if launch is None:
            return Answer(*graded, None, None, None)
        if not launch[1].isdigit():
            return Answer(*graded, "row", None, int(launch[2]))
        return Answer(*graded, "tile" if "tl.dot(" in turn["text"] else "block", int(launch[1]), int(launch[2]))


@dataclass(frozen=True)
class Finished:
    """A finished run: its summary and the rows that the page shows."""

    name: str
    summary: dict[str, Any]
    evaluations: list[dict[str, Any]]
    steps: list[dict[str, Any]]
    conversations: dict[str, list[list[Answer]]]
    """answers to held-out tasks, ``before`` and ``after`` RL"""

    @staticmethod
    def read(directory: Path) -> Finished:
        """Read a run directory. Ends the program when the run is not finished."""
        if not (directory / "summary.json").exists():
            raise SystemExit(f"{directory} is not finished; go on with: drkernel train --resume {directory}")
        summary = json.loads((directory / "summary.json").read_text())
        rows = [json.loads(line) for line in (directory / "metrics.jsonl").read_text().splitlines()]
        evaluations = [json.loads(line) for line in (directory / "eval.jsonl").read_text().splitlines()]
        conversations: dict[str, list[list[Answer]]] = {"before": [], "after": []}
        for line in (directory / "samples.jsonl").read_text().splitlines():
            if (row := json.loads(line))["split"] == "heldout":
                conversations["after" if row["step"] else "before"].append(list(map(Answer.of, row["turns"])))
        steps = [row for row in rows if row["stage"] == "rl"]
        return Finished(directory.name, summary, evaluations, steps, conversations)

    def answers(self, label: str) -> list[Answer]:
        """All answers, whatever their turn."""
        return [answer for turns in self.conversations[label] for answer in turns]

    def mended(self, label: str) -> str:
        """Of first answers that are wrong or below 1.2 times PyTorch's speed, how many the last answer mends."""
        bad = [turns[-1].fast for turns in self.conversations[label] if not turns[0].fast]
        return f"{sum(bad)} of {len(bad)}" + (f", {100 * statistics.mean(bad):.0f}%" if bad else "")

    def evaluation(self, label: str) -> dict[str, Any]:
        """The last evaluation with a label."""
        return [row for row in self.evaluations if row["label"] == label][-1]


def spread(values: Sequence[float]) -> str:
    """Mean and half-width of the 95% t-interval, in points."""
    mean = statistics.mean(values)
    if len(values) < 2:
        return f"{mean:+.1f}"
    half = student_quantile(0.975, len(values) - 1) * statistics.stdev(values) / math.sqrt(len(values))
    return f"{mean:+.1f} ± {half:.1f}"


def seed_table(runs: Sequence[Finished]) -> list[str]:
    """Held-out fast_1.2 of every seed, of last and first answers, what second answers mend, and what the run cost."""
    lines = [
        "| run | before | after | gain | first answers after | mended before | after | right before | after "
        "| RL steps | evaluations | tokens | minutes |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for run in runs:
        before, after = (run.evaluation(label) for label in ("before", "after"))
        last = [100 * row["fast_1.2"] for row in (before, after)]
        right = [100 * run.summary[label]["fast_0"] for label in ("before", "after")]
        summary = run.summary
        lines.append(
            f"| {run.name} | {last[0]:.1f}% | {last[1]:.1f}% | {last[1] - last[0]:+.1f} "
            f"| {100 * after['per_turn'][0]['fast_1.2']:.1f}% | {run.mended('before')} | {run.mended('after')} "
            f"| {right[0]:.1f}% | {right[1]:.1f}% "
            f"| {summary['steps']['rl']} | {summary['evaluations']} | {summary['tokens']} "
            f"| {summary['seconds'] / 60:.1f} |"
        )
    return lines


def mean_table(runs: Sequence[Finished]) -> list[str]:
    """Means over seeds of the headline figures, before and after."""
    lines = ["| held-out tasks, mean over seeds | before RL | after RL | change (points) |", "|---|---|---|---|"]
    for name in FIGURES:
        before = [100 * (run.summary["before"][name] or 0.0) for run in runs]
        after = [100 * (run.summary["after"][name] or 0.0) for run in runs]
        change = spread([b - a for a, b in zip(before, after, strict=True)])
        lines.append(f"| {name} | {statistics.mean(before):.1f}% | {statistics.mean(after):.1f}% | {change} |")
    return lines


def family_table(runs: Sequence[Finished]) -> list[str]:
    """Means over seeds of fast_1.2, family by family and turn by turn."""
    lines = ["| fast_1.2, mean over seeds | before RL | after RL |", "|---|---|---|"]

    def row(name: str, pick: Any) -> None:
        cells = [100 * statistics.mean(pick(run.evaluation(label)) for run in runs) for label in ("before", "after")]
        lines.append(f"| {name} | {cells[0]:.1f}% | {cells[1]:.1f}% |")

    for family in sorted(runs[0].evaluation("before")["families"]):
        row(family, lambda found, family=family: found["families"][family]["fast_1.2"])
    for turn in range(len(runs[0].evaluation("before")["per_turn"])):
        row(f"turn {turn + 1}", lambda found, turn=turn: found["per_turn"][turn]["fast_1.2"])
        if turn:
            row(f"answers of turn {turn + 1} alone", lambda found, turn=turn: found["answers"][turn]["fast_1.2"])
    row("best turn", lambda found: found["best"][-1]["fast_1.2"])
    return lines


def shares(
    runs: Sequence[Finished], label: str, key: Callable[[Answer], Any], of: Callable[[Answer], bool]
) -> defaultdict[Any, float]:
    """Return the percentage of the answers that ``of`` selects by the value of ``key``, mean over seeds."""
    found: defaultdict[Any, float] = defaultdict(float)
    for run in runs:
        kept = [key(answer) for answer in run.answers(label) if of(answer)]
        for value, count in Counter(kept).items():
            found[value] += 100 * count / len(kept) / len(runs)
    return found


def speedup_bin(answer: Answer) -> int:
    """Return the number of the bin of :data:`SPEEDUPS`; -1 for what is wrong or has no speedup."""
    if not answer.correct or answer.speedup is None:
        return -1
    return max(index for index, low in enumerate(SPEEDUPS[:-1]) if answer.speedup >= low)


def bin_name(index: int) -> str:
    """Return the bin in words."""
    if index < 0:
        return "wrong, or no speedup"
    low, high = SPEEDUPS[index], SPEEDUPS[index + 1]
    return f"{low:g}x and more" if math.isinf(high) else f"{low:g}x to {high:g}x"


def fusion(answer: Answer) -> str:
    """Return how much of a right answer's device time is in its own kernel."""
    coverage = answer.coverage or 0.0
    return "whole" if coverage >= 0.99 else "half and more" if coverage >= 0.5 else "less"


def launches(kernel: str) -> Callable[[Answer], bool]:
    """Return the test for answers with such a kernel."""
    return lambda answer: answer.kernel == kernel


CHOICES: dict[str, tuple[Callable[[Answer], Any], Callable[[Answer], bool]]] = {
    "own kernel's share of the time, right answers": (fusion, lambda answer: answer.correct),
    "elements of a block": (lambda answer: answer.size, launches("block")),
    "warps of a block": (lambda answer: answer.warps, launches("block")),
    "edge of a product's tile": (lambda answer: answer.size, launches("tile")),
    "warps of a row": (lambda answer: answer.warps, launches("row")),
}
"""what the policy chooses: how it is read from an answer, and of which answers"""


def choices(runs: Sequence[Finished]) -> list[list[str]]:
    """Distributions of speedups and of what the policy chooses, before and after RL; the head first."""
    rows = [["what", "value", "before RL", "after RL"]]
    before, after = (shares(runs, label, speedup_bin, lambda _: True) for label in ("before", "after"))
    for index in range(-1, len(SPEEDUPS) - 1):
        rows.append(["speedup, all answers", bin_name(index), f"{before[index]:.1f}%", f"{after[index]:.1f}%"])
    for title, (key, of) in CHOICES.items():
        before, after = (shares(runs, label, key, of) for label in ("before", "after"))
        for value in sorted({*before, *after}):
            rows.append([title, str(value), f"{before[value]:.1f}%", f"{after[value]:.1f}%"])
    return rows


def plot_choices(path: Path, runs: Sequence[Finished]) -> None:
    """Cumulative share of held-out answers by speedup, and bars of every choice; before and after RL."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot as plt

    figure, panels = plt.subplots(2, 3, figsize=(12.8, 6.4))
    for label, color in (("before", "tab:gray"), ("after", "tab:blue")):
        for run in runs:
            speedups = sorted(one.speedup if one.correct and one.speedup else 0.0 for one in run.answers(label))
            above = [100 * (1 - rank / len(speedups)) for rank in range(len(speedups))]
            panels[0, 0].step(speedups, above, color=color, alpha=0.7, label=label if run is runs[0] else None)
    panels[0, 0].set(xlabel="speedup p", ylabel="answers at least p times as fast (%)", xlim=(0, 5), ylim=(0, 100))
    for axes, title in zip(list(panels.flat)[1:], CHOICES, strict=True):
        key, of = CHOICES[title]
        found = {label: shares(runs, label, key, of) for label in ("before", "after")}
        values = sorted({*found["before"], *found["after"]})
        for offset, (label, color) in zip((-0.2, 0.2), (("before", "tab:gray"), ("after", "tab:blue")), strict=True):
            heights = [found[label][value] for value in values]
            axes.bar([place + offset for place in range(len(values))], heights, 0.4, color=color, label=label)
        axes.set_xticks(range(len(values)), [str(value) for value in values])
        axes.set(xlabel=title, ylabel="share (%)")
    for axes in panels.flat:
        axes.grid(alpha=0.3)
        axes.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=90)
    plt.close(figure)


def plot(path: Path, runs: Sequence[Finished]) -> None:
    """Training reward and held-out fast_1.2 by step, a curve a seed."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(9.6, 3.4))
    for run in runs:
        left.plot([row["step"] for row in run.steps], [row["reward"] for row in run.steps], label=run.name)
        rows = sorted(run.evaluations, key=lambda row: row["step"])
        values = [100 * row["fast_1.2"] for row in rows]
        bounds = [[100 * bound for bound in row["fast_1.2_interval"]] for row in rows]
        errors = [
            [max(0.0, value - low) for value, (low, _) in zip(values, bounds, strict=True)],
            [max(0.0, high - value) for value, (_, high) in zip(values, bounds, strict=True)],
        ]
        right.errorbar([row["step"] for row in rows], values, errors, label=run.name, capsize=2, marker="o", ms=3)
    left.set(xlabel="RL step", ylabel="mean reward of a turn (training tasks)")
    right.set(xlabel="RL step", ylabel="held-out fast_1.2 (%)", ylim=(0, 100))
    for axes in (left, right):
        axes.grid(alpha=0.3)
        axes.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=90)
    plt.close(figure)


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("runs", type=Path, nargs="+", help="run directories of finished runs")
    parser.add_argument("--results", type=Path, default=Path("docs/results"))
    args = parser.parse_args()
    runs = [Finished.read(directory) for directory in args.runs]
    args.results.mkdir(parents=True, exist_ok=True)
    gain = spread([100 * (run.summary["after"]["fast_1.2"] - run.summary["before"]["fast_1.2"]) for run in runs])
    first = runs[0].evaluation("before")
    page = [
        "# The quickstart over seeds",
        "",
        "What does RL gain in ten minutes on two cores? "
        f"**{gain} points of held-out fast_1.2 over {len(runs)} seed(s)** (mean and 95% t-interval).",
        "",
        f"`python benchmarks/quickstart_seeds.py {' '.join(run.name for run in runs)}` on runs of "
        "`drkernel train recipes/quickstart.yaml name=... seed=...`.",
        "",
        f"GPU time is {runs[0].summary['timing_kind']} on {runs[0].summary['device']}. Evaluated are {first['tasks']} "
        f"tasks of families never trained on, {first['trajectories']} trajectories, with equal draws before and after.",
        "",
        *seed_table(runs),
        "",
        "Figures are those after the last turn; *mended* are first answers that are wrong or slower than 1.2x and "
        "have a last answer that is neither; minutes are wall time of the whole run.",
        "",
        *mean_table(runs),
        "",
        *family_table(runs),
        "",
        "![reward and held-out fast_1.2 by step](quickstart.png)",
        "",
        "## What RL chooses",
        "",
        "Answers to held-out tasks, both turns, mean over seeds; sizes and warps are read from an answer's launch. The "
        "teacher draws them with equal probability. An own kernel's share is *whole* from 99% on.",
        "",
        "![speedups, block sizes and warps before and after RL](quickstart_choices.png)",
        "",
        write_table(args.results / "quickstart.csv", choices(runs)),
        "",
    ]
    plot(args.results / "quickstart.png", runs)
    plot_choices(args.results / "quickstart_choices.png", runs)
    write_page(args.results / "quickstart.md", "\n".join(page))
    print("\n".join(page[4:]))


if __name__ == "__main__":
    main()
