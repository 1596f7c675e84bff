"""Several runs on one page: a leaderboard, their curves on common charts, and what differs from the first run."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup

from drkernel.base.files import write_atomic
from drkernel.config import ConfigError
from drkernel.report.bench import fast_rows, figures
from drkernel.report.render import Curve, line_plot, render
from drkernel.report.run import evaluated, kind_of, read_run
from drkernel.solve.bench import read_bench, summary_of
from drkernel.view import percent, times

Row = dict[str, Any]
FIGURES = ("fast_0", "fast_1", "fast_1.2")
TITLES = {"fast_0": "Correct", "fast_1": "Faster than PyTorch", "fast_1.2": "More than 1.2× as fast as PyTorch"}


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
    rows, curves = [], {name: list[Curve]() for name in FIGURES}
    for run in runs:
        bench = read_bench(run)
        summary = summary_of(bench)
        row = {"run": str(run), "model": bench.model, "tasks": f"{len(bench.tasks)} × {bench.config.samples}"}
        if "last" in summary:
            best = fast_rows(summary)[-1][1]
            row |= {name: " ".join(best[name]) for name in ("correct", *FIGURES[1:])}
            for name in FIGURES:
                steps = [turn["best"][name] for turn in summary["per_turn"]]
                curves[name].append(_curve(str(run), list(range(1, len(steps) + 1)), steps))
        row |= {one.name: one.value for one in figures(summary)}
        rows.append(row)
    return rows, _charts(curves, "turn", "share of tasks, best turn so far")


def _trained(runs: Sequence[Path]) -> tuple[list[Row], list[tuple[str, Markup]]]:
    """Rows and charts of training runs: evaluations on held-out tasks, by step."""
    rows, curves = [], {name: list[Curve]() for name in FIGURES}
    for run in runs:
        data = read_run(run)
        after = data.evaluation("after") or (data.evaluations[-1] if data.evaluations else {})
        row = {"run": str(run), "evaluation": after.get("label", "none yet"), "step": str(after.get("step", ""))}
        for name in FIGURES:
            row["correct" if name == "fast_0" else name] = percent(after[name]) if after.get(name) is not None else ""
            curve = evaluated(data, name)
            curves[name].append(Curve(str(run), curve.x, curve.y, curve.low, curve.high))
        row["speedup"] = _times(after.get("speedup"))
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


def _times(value: float | None) -> str:
    return "" if value is None else f"{times(value)}×"


def difference(row: Row) -> tuple[str, ...]:
    """A row of a comparison in words: figure, first, second, difference, 95% interval, p."""
    scale, digits, unit = (1, 3, "") if "reward" in row["figure"] else (100, 1, "%")
    first, second = (f"{scale * row[name]:.{digits}f}{unit}" for name in ("first", "second"))
    gap, *between = (
        "" if row[name] is None else f"{scale * row[name]:+.{digits}f}" for name in ("difference", "low", "high")
    )
    p = f"{row['p']:.3f}" if row["p"] >= 0.001 else "<0.001"
    return row["figure"], first, second, gap + " pt" * bool(unit), " to ".join(filter(None, between)), p
