"""A benchmark run as one self-contained HTML page: how good the model is, turn by turn and task by task; and several
runs on one.
"""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup

from drkernel.base.files import write_atomic
from drkernel.config import ConfigError, dump_config
from drkernel.episode.meter import money
from drkernel.episode.metrics import baseline_name, size_lines
from drkernel.episode.records import Turn, best_of
from drkernel.gym.device import gpu_name
from drkernel.report import run as training
from drkernel.report import solve as search
from drkernel.report.render import STATUSES, Curve, line_plot, render, status_plot
from drkernel.report.run import evaluated, kind_of, read_run
from drkernel.report.solve import in_short, opening
from drkernel.solve.bench import Bench, read_bench, summary_of
from drkernel.view import Figure, percent, sizes_text, times

SHOWN_ANSWERS = 1200
"""Answers that are shown in full; more would make the page too heavy to open."""
TITLES = {"fast_0": "Correct", "fast_1": "Faster than PyTorch", "fast_1.2": "More than 1.2× as fast as PyTorch"}
"""the curves that are drawn"""
Row = dict[str, Any]


def write_report(directory: Path, live: bool = False) -> Path:
    """Write ``report.html`` into a run directory of any kind; its path. A ``live`` page reads itself anew.

    Raises:
        ConfigError: the directory is no run, or its files are damaged.
    """
    if (kind := kind_of(directory)) == "train":
        text = training.page(read_run(directory), live)
    else:
        text = (page if kind == "bench" else search.page)(read_bench(directory), live)
    path = directory / "report.html"
    write_atomic(path, text)
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
    for name, title in TITLES.items():
        lines = [
            _curve(label, turns, [row[key][name] for row in summary["per_turn"]])
            for label, key in (("best turn so far", "best"), ("this turn", "last"))
        ]
        if any(value for line in lines for value in line.y):
            plots.append((title, line_plot(lines, x_label="turn", y_label="share of tasks", y_range=(0.0, 1.0))))
    made = [turn for key in bench.keys for turn in bench.played.turns(key)]
    counts = [Counter[str](turn.status for turn in made if turn.number == number) for number in turns]
    return [*plots, ("Verdicts", status_plot(turns, counts, x_label="turn"))]


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


# ---- several runs on one page: a leaderboard, their curves on common charts, and what differs from the first run


def write_board(path: Path, runs: Sequence[Path], compared: Sequence[Row] = ()) -> None:
    """Write the page of runs of one kind; ``compared`` are comparisons of the others with the first.

    Raises:
        ConfigError: a directory is no run, or training runs stand beside others.
    """
    kinds = [kind_of(run) == "train" for run in runs]
    if any(kinds) and not all(kinds):
        raise ConfigError("runs of training do not compare with those of bench and solve")
    rows, charts = _trained(runs) if all(kinds) else _played(runs)
    text = render(
        "board",
        runs=[str(run) for run in runs],
        head=list(dict.fromkeys(name for row in rows for name, text in row.items() if text)),
        rows=rows,
        charts=charts,
        by="last turn" if all(kinds) else "best turn so far",
        compared=[(one["second"]["run"], one["first"]["run"], [difference(row) for row in one["rows"]])
                  for one in compared],
    )  # fmt: skip
    write_atomic(path, text)


def _played(runs: Sequence[Path]) -> tuple[list[Row], list[tuple[str, Markup]]]:
    """Rows and charts of bench and solve runs: the best turn so far, by turn."""
    rows, curves = [], {name: list[Curve]() for name in TITLES}
    for run in runs:
        bench = read_bench(run)
        summary = summary_of(bench)
        row = {"run": str(run), "model": bench.model, "tasks": f"{len(bench.tasks)} × {bench.config.samples}"}
        if "last" in summary:
            best = fast_rows(summary)[-1][1]
            row |= {name: " ".join(best[name]) for name in best if name == "correct" or name in TITLES}
            for name in TITLES:
                steps = [turn["best"][name] for turn in summary["per_turn"]]
                curves[name].append(_curve(str(run), list(range(1, len(steps) + 1)), steps))
        row |= {one.name: one.value for one in figures(summary)}
        rows.append(row)
    return rows, _charts(curves, "turn", "share of tasks, best turn so far")


def _trained(runs: Sequence[Path]) -> tuple[list[Row], list[tuple[str, Markup]]]:
    """Rows and charts of training runs: evaluations on held-out tasks, by step."""
    rows, curves = [], {name: list[Curve]() for name in TITLES}
    for run in runs:
        data = read_run(run)
        after = data.evaluation("after") or (data.evaluations[-1] if data.evaluations else {})
        row = {"run": str(run), "evaluation": after.get("label", "none yet"), "step": str(after.get("step", ""))}
        for name in TITLES:
            row["correct" if name == "fast_0" else name] = percent(after[name]) if after.get(name) is not None else ""
            curve = evaluated(data, name)
            curves[name].append(Curve(str(run), curve.x, curve.y, curve.low, curve.high))
        row["speedup"] = "" if after.get("speedup") is None else f"{times(after['speedup'])}×"
        row["hacked"] = percent(after["hack_rate"]) if after.get("hack_rate") is not None else ""
        rows.append(row)
    return rows, _charts(curves, "step", "share of held-out tasks")


def _curve(name: str, x: list[int], estimates: Sequence[Row]) -> Curve:
    value, low, high = ([one[key] for one in estimates] for key in ("value", "low", "high"))
    return Curve(name, x, value, low, high)


def _charts(curves: dict[str, list[Curve]], x: str, y: str) -> list[tuple[str, Markup]]:
    return [
        (TITLES[name], line_plot(lines, x_label=x, y_label=y, y_range=(0.0, 1.0))) for name, lines in curves.items()
    ]


def difference(row: Row) -> tuple[str, ...]:
    """A row of a comparison in words: figure, first, second, difference, 95% interval, p."""
    scale, digits, unit = (1, 3, "") if "reward" in row["figure"] else (100, 1, "%")
    first, second = (f"{scale * row[name]:.{digits}f}{unit}" for name in ("first", "second"))
    gap, *between = (
        "" if row[name] is None else f"{scale * row[name]:+.{digits}f}" for name in ("difference", "low", "high")
    )
    p = f"{row['p']:.3f}" if row["p"] >= 0.001 else "<0.001"
    return row["figure"], first, second, gap + " pt" * bool(unit), " to ".join(filter(None, between)), p
