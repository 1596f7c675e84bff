"""A benchmark run as one self-contained HTML page: how good the model is, turn by turn and task by task."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup

from drkernel.base.files import write_atomic
from drkernel.config import dump_config
from drkernel.episode.meter import money
from drkernel.episode.metrics import baseline_name, size_lines
from drkernel.episode.records import Turn, best_of
from drkernel.gym.device import gpu_name
from drkernel.report.render import STATUSES, Curve, line_plot, render, stacked_plot
from drkernel.report.solve import in_short, opening
from drkernel.solve.bench import Bench, read_bench, summary_of
from drkernel.view import Figure, sizes_text, times

SHOWN_ANSWERS = 1200
"""Answers that are shown in full; more would make the page too heavy to open."""
Row = dict[str, Any]


def write_bench_report(directory: Path, live: bool = False) -> Path:
    """Write ``report.html`` into a run directory, finished or not; its path. A ``live`` page reads itself anew.

    Raises :class:`~drkernel.config.ConfigError` when the directory is no bench run.
    """
    path = directory / "report.html"
    write_atomic(path, page(read_bench(directory), live))
    return path


def page(bench: Bench, live: bool = False) -> str:
    """The page as text."""
    summary = summary_of(bench)
    episode = bench.config.episode
    return render(
        "bench",
        live=live,
        model=bench.model,
        config=bench.config,
        config_text=dump_config(bench.config),
        tasks=bench.tasks,
        summary=summary,
        numbers=_top(summary),
        baseline=baseline_name(summary["baseline"]),
        place=episode.settings.place,
        gpu=gpu_name(episode.settings.place),
        size_lines=size_lines(summary["sizes"]),
        fast=fast_rows(summary) if "last" in summary else [],
        curves=_curves(bench, summary) if "last" in summary else [],
        meanings={name: look.meaning for name, look in STATUSES.items()},
        hacks=_hacks(summary) if "last" in summary else [],
        rows=_tasks(bench, summary["sizes"]["by_task"]),
        left_out=bench.resolved.left_out,
        shown=SHOWN_ANSWERS,
    )


def share(value: float) -> str:
    """A share of tasks, trajectories or time, to a tenth of a percent."""
    return f"{100 * value:.1f}%"


def fast_rows(summary: Row) -> list[tuple[str, dict[str, tuple[str, str]]]]:
    """Rows of the table of fast_p: the turns where there are several, the last one, the best; each has the estimate and
    its 95% interval over tasks by name."""
    rows = [(f"turn {number}", row["last"]) for number, row in enumerate(summary["per_turn"], 1)]
    rows = [*(rows if len(rows) > 1 else ()), ("last turn", summary["last"]), ("best turn", summary["best"])]
    return [
        (label, {
            "correct" if name == "fast_0" else name:
                (share(one["value"]), f"[{100 * one['low']:.0f}, {100 * one['high']:.0f}]")
            for name, one in estimates.items()
        })
        for label, estimates in rows
    ]  # fmt: skip


def figures(summary: Row) -> list[Figure]:
    """The other figures of a run, and what it spent."""
    found = []
    if "last" in summary:
        hacks = summary["hacks"]
        kinds = ", ".join(f"{name} {count}" for name, count in hacks["by_finding"].items())
        last = f"{share(hacks['last']['value'])} of last turns" + (f": {kinds}" if kinds else "")
        if summary["speedup_geomean"] is not None:
            note = f"geometric mean of the best correct answers, {summary['timing_kind']}"
            found.append(Figure("speedup", f"{times(summary['speedup_geomean'])}x", note))
        if summary["coverage"] is not None:
            found.append(Figure("coverage", share(summary["coverage"]), "of their device time is in own kernels"))
        found.append(Figure("hacks", share(hacks["ever"]["value"]), f"of trajectories at some turn, {last}"))
    usage = summary["usage"]
    parts = f"read ({usage['cached']:,} cached) and written ({usage['completion']:,})"
    total = f"{usage['prompt'] + usage['completion']:,}"
    found.append(Figure("tokens", total, parts + (", estimated" if usage["estimated"] else "")))
    return found if summary["dollars"] is None else [*found, Figure("cost", money(summary["dollars"]), "for answers")]


def _top(summary: Row) -> list[Figure]:
    """The figures at the top of the page."""
    best = fast_rows(summary)[-1][1] if "last" in summary else {}
    shown = {"correct": "correct", "fast_1": "faster than PyTorch", "fast_1.2": "faster than 1.2x"}
    first = [Figure(words, best[name][0], "best turn") for name, words in shown.items() if best]
    return [*first, *figures(summary)]


def _curves(bench: Bench, summary: Row) -> list[tuple[str, Markup]]:
    """Shares of tasks and of verdicts by turn; nothing for a single turn."""
    turns = list(range(1, len(summary["per_turn"]) + 1))
    if len(turns) == 1:
        return []
    plots = []
    for name, title in (("fast_0", "Correct"), ("fast_1", "Faster than PyTorch"), ("fast_1.2", "Faster than 1.2×")):
        lines = [
            Curve(
                label,
                turns,
                [row[key][name]["value"] for row in summary["per_turn"]],
                [row[key][name]["low"] for row in summary["per_turn"]],
                [row[key][name]["high"] for row in summary["per_turn"]],
            )
            for label, key in (("best turn so far", "best"), ("this turn", "last"))
        ]
        if any(value for line in lines for value in line.y):
            plots.append((title, line_plot(lines, x_label="turn", y_label="share of tasks", y_range=(0.0, 1.0))))
    made = [turn for key in bench.keys for turn in bench.played.turns(key)]
    counts = [Counter[str](turn.status for turn in made if turn.number == number) for number in turns]
    names = [name for name in STATUSES if any(count[name] for count in counts)]
    shares: dict[str, Sequence[float]] = {
        name.replace("_", " "): [count[name] / max(1, sum(count.values())) for count in counts] for name in names
    }
    colors = [STATUSES[name].fill for name in names]
    plot = stacked_plot(turns, shares, x_label="turn", y_label="share of answers", colors=colors)
    return [*plots, ("Verdicts", plot)]


def _hacks(summary: Row) -> list[tuple[str, float, str]]:
    """Bars of trajectories with a condemned answer, by finding."""
    total = summary["trajectories"]
    return [(name, count / total, f"{count} of {total}") for name, count in summary["hacks"]["by_finding"].items()]


def _tasks(bench: Bench, sizes: Row) -> list[Row]:
    """For each task its ``plays`` (cells of every turn), its ``best`` answer's cell and turn, and its ``sizes``."""
    rows: list[Row] = []
    shown = 0
    for number, task in enumerate(bench.tasks):
        plays = [bench.played.turns((task.id, sample)) for sample in range(bench.config.samples)]
        cells: list[list[Row]] = []
        for sample, play in enumerate(plays):
            cells.append([])
            for turn in play:
                shown += 1
                cells[-1].append(_cell(turn, f"a{number}-{sample}-{turn.id}" if shown <= SHOWN_ANSWERS else None))
        best = best_of([turn for play in plays for turn in play])
        first = opening(bench, task) if shown <= SHOWN_ANSWERS else []
        text = first[-1].content if first else ""
        rows.append({"task": task, "plays": cells, "best": best, "sizes": sizes.get(task.id), "opening": text})
    return rows


def _cell(turn: Turn, link: str | None) -> Row:
    """One answer: as small as it can be read, and in full under ``link`` where it has one."""
    status = turn.status
    speed = "" if turn.speedup is None else f"{times(turn.speedup)}×"
    return {
        "turn": turn,
        "status": status,
        "slow": turn.speedup is not None and turn.speedup <= 1,
        "title": f"turn {turn.number}: {status.replace('_', ' ')} {speed}".strip(),
        "word": "no code" if turn.code is None else speed or STATUSES[status].word,
        "short": in_short(turn.verdict),
        "sizes": sizes_text(turn.verdict),
        "link": link,
    }
