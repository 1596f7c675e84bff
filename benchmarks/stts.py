"""Sequential test-time scaling: what more turns give, with and without context management, and what they cost.

    python benchmarks/stts.py                      # scripted writer, built-in tasks: tables
    python benchmarks/stts.py --write              # also a section of docs/results/stts.md, stts.png
    python benchmarks/stts.py --model hf:runs/quickstart/checkpoints/final    # a real policy, held-out generated tasks;
                                   # with --write its section, and stts_policy.png

Vanilla keeps every turn in the conversation until the context is full. Managed holds the best four turns so far, as in
the paper. Best of n answers the task alone each time. All get the same context and
the same number of evaluations, by the real judge on `sim:h200` (speedups are modelled). Needs no GPU; about five
minutes on two cores.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path
from statistics import mean
from typing import Any

from drkernel.episode.episode import EpisodeConfig
from drkernel.episode.meter import CallLimits, Meter
from drkernel.episode.records import (
    Answerer,
    Sampling,
    Turn,
)
from drkernel.episode.renderer import Prompts
from drkernel.gym.pools.local import LocalPool
from drkernel.gym.request import EvalSettings
from drkernel.registry import Method
from drkernel.solve.bench import BenchRun, Resolved
from drkernel.solve.bench import compare as compare_runs
from drkernel.solve.config import BenchConfig
from drkernel.task import Task
from stts_writer import CLIMB, KERNELS, RUNGS, STAY, Writer
from surveys import parser_of

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "results" / "stts.md"

MANAGED = "managed, best 4"
MODES = {
    "vanilla": Method(name="full"),
    MANAGED: Method(name="best", options={"keep": 4}),
    "best of n": Method(name="afresh"),
}
PLOTTED = "fast_1.2"
SETTINGS = EvalSettings(profile="tiny", checks=2)
LEAN = EvalSettings(checked_bytes=1 << 20, checked_flops=1e7, checks=2, other_calls=False)
"""as the quickstart grades its policy, which knows no other tasks"""
Row = dict[str, Any]
WRITER = f"""`python benchmarks/stts.py --write`: {len(KERNELS)} built-in tasks, {{samples}} trajectories each, up to
{{turns}} turns, a context of {{context:,}} tokens. The writer is a script that climbs a ladder of real kernels
({", ".join(RUNGS)}) from the best of its answers that the conversation still shows: a rung up with chance {CLIMB}, none
with {STAY}, else a slip.

![fast_1.2 by turns, context by turns, fast_1.2 by tokens](stts.png)"""
POLICY = """`python benchmarks/stts.py --model {model} --turns {turns} --samples {samples} --tasks {tasks} --write`:
{tasks} tasks of families that the policy never saw, {samples} trajectories each.

![fast_1.2 by turns, context by turns, fast_1.2 by tokens](stts_policy.png)"""


def main() -> int:
    parser = parser_of(__doc__)
    parser.add_argument("--turns", type=int, default=30)
    parser.add_argument("--samples", type=int, default=4)
    parser.add_argument("--context", type=int, default=4096, help="tokens of the conversation, answer included")
    parser.add_argument("--model", help="hf:PATH of a policy; default: the scripted writer")
    parser.add_argument("--tasks", type=int, default=30, help="held-out generated tasks of a policy")
    parser.add_argument("--answer", type=int, default=160, help="token budget of a policy's answer")
    parser.add_argument("--out", type=Path, help="keep the runs here, and take them up again")
    parser.add_argument("--write", action="store_true", help=f"write this run's section of {PAGE.relative_to(ROOT)}")
    arguments = parser.parse_args()
    import torch

    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as scratch:
        directory = arguments.out or Path(scratch)
        results = asyncio.run(compare(arguments, directory))
        pairs = differences(directory)
    print(f"{pairs}\n")
    print(table(results, arguments.turns))
    if arguments.write:
        draw(results, PAGE.with_name("stts.png" if arguments.model is None else "stts_policy.png"))
        PAGE.write_text(page(results, arguments, pairs), encoding="utf-8")
        print(f"\nwrote {PAGE}")
    return 0


async def compare(arguments: argparse.Namespace, directory: Path) -> dict[str, Row]:
    """All modes on the same tasks with the same writer."""
    tasks, prompts, sampling, limit = setting(arguments)
    results = {}
    with LocalPool(cache=100_000) as pool:  # the same source for the same task is graded once
        for name, context in MODES.items():
            model = open_writer(arguments.model, sampling)
            settings = SETTINGS if arguments.model is None else LEAN
            config = BenchConfig(
                model=model.name,
                tasks="stts",
                samples=arguments.samples,
                episode=EpisodeConfig(turns=arguments.turns, settings=settings, context=context, prompts=prompts.name),
                sampling=sampling,
                context_tokens=limit,
                judge_seed=0,
            )
            resolved = Resolved(model=model.name, prompts_version=prompts.version)
            with BenchRun(folder(directory, name), config, resolved, tasks, prompts) as run:
                summary = await run.run(Meter(model, limits=CallLimits(concurrency=64)), pool, at_once=64)
                made = [turn for turns in run.bench.played.made.values() for turn in turns.values()]
            results[name] = {"summary": summary, **context_used(made, arguments.turns)}
            print(f"{name}: {summary['answers']} answers", file=sys.stderr)
    return results


def folder(directory: Path, name: str) -> Path:
    """The run directory of a mode."""
    return directory / name.replace(" ", "-").replace(",", "")


def differences(directory: Path) -> str:
    """The best of each mode's evaluations against managed's, task by task, as a table."""
    lines = [f"| {PLOTTED}, best of all turns | against {MANAGED} | 95% interval | p |", "|---|---|---|---|"]
    for name in MODES:
        if name != MANAGED:
            rows = compare_runs(folder(directory, MANAGED), folder(directory, name))["rows"]
            (row,) = [row for row in rows if row["figure"] == f"best turn {PLOTTED}"]
            low, high = 100 * row["low"], 100 * row["high"]
            lines.append(
                f"| {name} | {100 * row['difference']:+.1f} points | {low:+.1f} to {high:+.1f} | {row['p']:.3f} |"
            )
    return "\n".join(lines)


def setting(arguments: argparse.Namespace) -> tuple[list[Task], Prompts, Sampling, int | None]:
    """Tasks, prompts, sampling terms and the context's limit (a policy's own is told by the policy)."""
    if arguments.model is None:
        from drkernel.tasks.builtin import builtin_task

        tasks = [builtin_task(name) for name in KERNELS]
        return tasks, Prompts.load("full"), Sampling(max_tokens=1024, seed=0), arguments.context
    from drkernel.rl.data.teacher.problem import generate_tasks

    sampling = Sampling(max_tokens=arguments.answer, seed=0, extra={"rows": 32})
    return generate_tasks("heldout", arguments.tasks, 2), Prompts.load("compact"), sampling, None


def open_writer(model: str | None, sampling: Sampling) -> Answerer:
    """The scripted writer or a local policy."""
    if model is None:
        return Writer()
    from drkernel.solve.config import open_model

    return open_model(model, sampling=sampling)


def context_used(played: list[Turn], turns: int) -> Row:
    """Tokens read at each turn, the share of trajectories that still play, and tokens spent up to each turn."""
    by_turn = [[turn for turn in played if turn.number == number] for number in range(1, turns + 1)]
    plays = max(1, len(by_turn[0]))
    read = [mean(a.reply.usage.prompt for a in made) if made else None for made in by_turn]
    spent, total = [], 0.0
    for made in by_turn:
        total += sum(a.reply.usage.total for a in made) / plays
        spent.append(total)
    return {"read": read, "alive": [len(made) / plays for made in by_turn], "spent": spent}


def table(results: dict[str, Row], turns: int) -> str:
    """Figures of all modes at a few turns."""
    lines = ["| search | turns | best so far, fast_1.2 | last turn | still playing | context read | tokens spent |"]
    lines.append("|---|---:|---|---:|---:|---:|---:|")
    for name, row in results.items():
        for turn in (turns,):
            figures = row["summary"]["per_turn"][turn - 1]
            best, last = figures["best"][PLOTTED], figures["last"][PLOTTED]
            read = row["read"][turn - 1]
            lines.append(
                f"| {name} | {turn} | {100 * best['value']:.1f}% [{100 * best['low']:.0f}, {100 * best['high']:.0f}] | "
                f"{100 * last['value']:.1f}% | {100 * row['alive'][turn - 1]:.0f}% | "
                f"{'none' if read is None else f'{read:,.0f}'} | {row['spent'][turn - 1]:,.0f} |"
            )
    return "\n".join(lines)


def draw(results: dict[str, Row], path: Path) -> None:
    """Three panels: quality by turns, context by turns, quality by tokens spent."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, (left, middle, right) = plt.subplots(1, 3, figsize=(13, 4))
    for name, row in results.items():
        best = [entry["best"][PLOTTED] for entry in row["summary"]["per_turn"]]
        turns = range(1, len(best) + 1)
        values = [100 * b["value"] for b in best]
        (line,) = left.plot(turns, values, label=name)
        left.fill_between(
            turns, [100 * b["low"] for b in best], [100 * b["high"] for b in best], alpha=0.12, color=line.get_color()
        )
        known = [(turn, read) for turn, read in zip(turns, row["read"], strict=True) if read is not None]
        middle.plot(*zip(*known, strict=True), color=line.get_color())
        right.plot([value / 1000 for value in row["spent"]], values, color=line.get_color())
    left.set(xlabel="turns", ylabel="fast_1.2, best so far (%)", title="more turns")
    middle.set(xlabel="turn", ylabel="tokens in the conversation", title="what the model reads")
    right.set(xlabel="thousand tokens spent a trajectory", ylabel="fast_1.2, best so far (%)", title="for the tokens")
    left.legend(frameon=False)
    for axes in (left, middle, right):
        axes.grid(alpha=0.25)
        axes.set_ylim(bottom=0)
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def page(results: dict[str, Row], arguments: argparse.Namespace, pairs: str) -> str:
    """The results page with the section of this run replaced; what follows a section's figures is written by hand."""
    policy = arguments.model is not None
    title = "## A small trained policy" if policy else "## A scripted writer"
    text = PAGE.read_text(encoding="utf-8")
    start = text.index(title)
    section, rest = text[start:].partition("\n## ")[::2]
    reading = section.partition("**Reading.**")[2].strip()
    figures = "\n\n".join(
        [(POLICY if policy else WRITER).format(**vars(arguments)), table(results, arguments.turns), pairs]
    )
    return f"{text[:start]}{title}\n\n{figures}\n\n**Reading.** {reading}\n" + (f"\n## {rest}" if rest else "")


if __name__ == "__main__":
    sys.exit(main())
