"""A benchmark run as one self-contained HTML page: how good the model is, turn by turn and task by task."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup

from drkernel.base.files import write_atomic
from drkernel.config import dump_config
from drkernel.episode.meter import money
from drkernel.episode.metrics import THRESHOLDS, baseline_name, fast_name, size_lines
from drkernel.episode.records import Turn, best_of
from drkernel.gym.device import gpu_name
from drkernel.gym.feedback import percent, sizes_text, times
from drkernel.report.render import STATUSES, Curve, line_plot, render, stacked_plot
from drkernel.report.solve import in_short, opening
from drkernel.solve.bench import Bench, read_bench, summary_of

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
        numbers=_numbers(summary),
        baseline=baseline_name(summary["baseline"]),
        place=episode.settings.place,
        gpu=gpu_name(episode.settings.place),
        size_lines=size_lines(summary["sizes"]),
        thresholds=[fast_name(p) for p in THRESHOLDS],
        curves=_curves(bench, summary) if "last" in summary else [],
        meanings={name: look.meaning for name, look in STATUSES.items()},
        hacks=_hacks(summary) if "last" in summary else [],
        rows=_tasks(bench, summary["sizes"]["by_task"]),
        left_out=bench.resolved.left_out,
        shown=SHOWN_ANSWERS,
    )


def _numbers(summary: Row) -> list[tuple[str, str]]:
    """The figures at the top, each with a caption."""
    items: list[tuple[str, str]] = []
    if "last" in summary:
        best = summary["best"]
        items = [
            (_share(best["fast_0"]), "correct (best turn)"),
            (_share(best["fast_1"]), "faster than PyTorch"),
            (_share(best["fast_1.2"]), "faster than 1.2×"),
        ]
        if summary["speedup_geomean"] is not None:
            kind = summary["timing_kind"]
            items.append(
                (f"{times(summary['speedup_geomean'])}×", f"speedup of correct answers (geometric mean, {kind})")
            )
        if summary["coverage"] is not None:
            items.append((percent(summary["coverage"]), "of their device time in own kernels"))
        items.append((_share(summary["hacks"]["ever"]), "of trajectories were condemned as a hack at some turn"))
    usage = summary["usage"]
    tokens = usage["prompt"] + usage["completion"]
    items.append((f"{tokens:,}", "tokens read and written" + (" (estimated)" if usage["estimated"] else "")))
    if summary["dollars"] is not None:
        items.append((money(summary["dollars"]), "for the answers"))
    return items


def _share(estimate: Row) -> str:
    return f"{100 * estimate['value']:.1f}%"


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
