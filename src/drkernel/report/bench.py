"""A benchmark run as one self-contained HTML page: how good the model is, turn by turn and task by task."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

from drkernel.episode.meter import money
from drkernel.episode.metrics import THRESHOLDS, baseline_name, fast_name
from drkernel.episode.records import Turn, best_of
from drkernel.gym.feedback import percent
from drkernel.report.solve import figures, shell, tag, timing_note
from drkernel.report.svg import Line, bar_rows, line_plot, stacked_plot
from drkernel.report.verdict_html import code_block
from drkernel.solve.bench import Bench, read_bench, summary_of
from drkernel.task import Task

MEANINGS = {
    "correct": "right on every call, by its own kernels",
    "incorrect": "ran, but an output was wrong",
    "hack": "looked right but did not do the work: condemned by evidence",
    "compile_error": "did not compile, or held no code",
    "runtime_error": "raised an exception",
    "timeout": "did not end in time",
    "out_of_memory": "asked for more memory than the device has",
    "unsupported": "in a language that the device cannot run: neither right nor wrong, outside fast_p",
    "infra_error": "the grader failed; counts for nothing",
    "invalid_request": "the task could not be graded; counts for nothing",
}
"""What a verdict says, for a reader who never saw one; in the order of the plots."""
STATUS_COLORS = {
    "correct": "#23814c", "incorrect": "#c06a1a", "hack": "#7d3aa0", "compile_error": "#b3362c",
    "runtime_error": "#8c2f5f", "timeout": "#6b6f76", "out_of_memory": "#4a5560", "unsupported": "#3b6ea5",
}  # fmt: skip
SHOWN_CODE = 300
"""Tasks whose best answer is shown in full; more would make the page too heavy to open."""
Row = dict[str, Any]


def write_bench_report(directory: Path) -> Path:
    """Write ``report.html`` into a run directory, finished or not; its path.

    Raises :class:`~drkernel.config.ConfigError` when the directory is no bench run.
    """
    path = directory / "report.html"
    temporary = path.with_suffix(".html.tmp")
    temporary.write_text(page(read_bench(directory)), encoding="utf-8")
    os.replace(temporary, path)
    return path


def page(bench: Bench) -> str:
    """The page as text."""
    summary = summary_of(bench)
    body = [f"<h1>{escape(bench.model)} on {escape(bench.config.tasks)}</h1>", _headline(bench, summary)]
    if "last" in summary:
        body += [
            _table(summary),
            _curves(bench, summary),
            _at_k(summary),
            _verdicts(summary),
            _hacks(summary),
        ]
    body += [_tasks(bench), _left_out(bench), _terms(bench)]
    return shell(f"drkernel bench {bench.model}", "".join(body))


def _headline(bench: Bench, summary: Row) -> str:
    shrunk = sum(bool(task.provenance.scaled) for task in bench.tasks)
    samples, turns = bench.config.samples, bench.config.episode.turns
    sizes = ", ".join([_count(len(bench.tasks), "task"), _count(samples, "sample") + " each", _count(turns, "turn")])
    text = (
        "<p class='dim'>Each task is a PyTorch module; the model is asked for a Triton kernel that computes the same, "
        f"faster. {sizes}: after every turn but the last the model reads what the grader saw. fast_p is the share of "
        "tasks whose answer is right, honest, and more than p times as fast as "
        f"{baseline_name(summary['baseline'])}.</p>"
    )
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
            items.append((f"{summary['speedup_geomean']:.2f}×", f"speedup of correct answers (geometric mean, {kind})"))
        if summary["coverage"] is not None:
            items.append((percent(summary["coverage"]), "of their device time in own kernels"))
        items.append((_share(summary["hacks"]["ever"]), "of trajectories were condemned as a hack at some turn"))
    usage = summary["usage"]
    tokens = usage["prompt"] + usage["completion"]
    items.append((f"{tokens:,}", "tokens read and written" + (" (estimated)" if usage["estimated"] else "")))
    if summary["dollars"] is not None:
        items.append((money(summary["dollars"]), "for the answers"))
    text += figures(items) + timing_note(summary["device"])
    for reason, count in summary["incomplete_because"].items():
        text += (
            f"<p class='warn'>{count} of {summary['expected_trajectories']} trajectories are missing, and no figure "
        )
        text += f"counts them: {escape(reason)}.</p>"
    if shrunk:
        text += f"<p class='note'>{shrunk} tasks run at smaller sizes than they were published with.</p>"
    if summary["left_out"]:
        text += f"<p class='note'>{summary['left_out']} tasks are left out and not counted; the list is below.</p>"
    return text


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _share(estimate: Row) -> str:
    return f"{100 * estimate['value']:.1f}%"


def _table(summary: Row) -> str:
    names = [fast_name(p) for p in THRESHOLDS]
    head = "".join(f"<th class='r'>{'correct' if name == 'fast_0' else name}</th>" for name in names)
    rows = []
    for label, key in (("last turn", "last"), ("best turn", "best")):
        cells = "".join(
            f"<td class='r'>{_share(summary[key][name])} <span class='dim'>[{100 * summary[key][name]['low']:.0f}, "
            f"{100 * summary[key][name]['high']:.0f}]</span></td>"
            for name in names
        )
        rows.append(f"<tr><td>{label}</td>{cells}</tr>")
    return (
        f"<h2>fast_p</h2><div class='scroll'><table><tr><th></th>{head}</tr>{''.join(rows)}</table></div>"
        "<p class='dim'>In brackets: 95% bootstrap intervals over tasks. Best turn: the fastest correct answer so far, "
        "which is what a user of the search would get.</p>"
    )


def _curves(bench: Bench, summary: Row) -> str:
    turns = list(range(1, len(summary["per_turn"]) + 1))
    if len(turns) == 1:
        return ""
    plots = []
    for name, title in (("fast_0", "Correct"), ("fast_1", "Faster than PyTorch"), ("fast_1.2", "Faster than 1.2×")):
        lines = [
            Line(
                label,
                turns,
                [row[key][name]["value"] for row in summary["per_turn"]],
                [row[key][name]["low"] for row in summary["per_turn"]],
                [row[key][name]["high"] for row in summary["per_turn"]],
            )
            for label, key in (("best turn so far", "best"), ("this turn", "last"))
        ]
        plot = line_plot(lines, x_label="turn", y_label="share of tasks", y_range=(0.0, 1.0))
        plots.append(f"<figure><figcaption>{title}</figcaption>{plot}</figure>")
    made = [turn for key in bench.keys for turn in bench.played.turns(key)]
    counts = [Counter[str](turn.status for turn in made if turn.number == number) for number in turns]
    names = [name for name in MEANINGS if any(count[name] for count in counts)]
    shares: dict[str, Sequence[float]] = {
        name.replace("_", " "): [count[name] / max(1, sum(count.values())) for count in counts] for name in names
    }
    colors = [STATUS_COLORS.get(name, "var(--dim)") for name in names]
    plot = stacked_plot(turns, shares, x_label="turn", y_label="share of answers", colors=colors)
    plots.append(f"<figure><figcaption>Verdicts</figcaption>{plot}</figure>")
    return f"<h2>Turn by turn</h2><div class='plots'>{''.join(plots)}</div>"


def _at_k(summary: Row) -> str:
    if len(summary["at_k"]) < 2:
        return ""
    names = ("pass@k", "fast_1@k", "fast_1.2@k", "fast_2@k")
    rows = "".join(
        f"<tr><td>{k}</td>" + "".join(f"<td class='r'>{100 * row[name]:.1f}%</td>" for name in names)
        + f"<td class='r'>{row['best_speedup@k']:.2f}×</td></tr>"
        for k, row in summary["at_k"].items()
    )  # fmt: skip
    head = "".join(f"<th class='r'>{name}</th>" for name in names)
    return (
        f"<h2>Best of k samples</h2><div class='scroll'><table><tr><th>k</th>{head}<th class='r'>speedup</th></tr>"
        f"{rows}</table></div><p class='dim'>What the best of k samples would give, averaged over all choices of "
        f"k; the speedup ({summary['timing_kind']}) of a task without a correct answer counts as 0.</p>"
    )


def _verdicts(summary: Row) -> str:
    """How often each verdict came, and what it means."""
    every, last = summary["status_all"], summary["status_last"]
    rows = "".join(
        f"<tr><td>{tag(name)}</td><td class='r'>{last.get(name, 0)}</td><td class='r'>{every.get(name, 0)}</td>"
        f"<td class='wide'>{MEANINGS[name]}</td></tr>"
        for name in MEANINGS
        if name in every
    )
    totals = f"<tr><td></td><td class='r'>{summary['trajectories']}</td><td class='r'>{summary['answers']}</td></tr>"
    return (
        "<h2>Verdicts</h2><div class='scroll'><table class='steps'><tr><th>verdict</th><th class='r'>last turns</th>"
        f"<th class='r'>all answers</th><th>meaning</th></tr>{rows}{totals}</table></div>"
    )


def _hacks(summary: Row) -> str:
    hacks = summary["hacks"]
    if not hacks["by_finding"]:
        return "<h2>Hacks</h2><p>No answer was condemned.</p>"
    total = summary["trajectories"]
    rows = [(name, count / total, f"{count} of {total}") for name, count in hacks["by_finding"].items()]
    return f"<h2>Hacks: trajectories with a condemned answer, by finding</h2>{bar_rows(rows, 1.0)}"


def _tasks(bench: Bench) -> str:
    rows = []
    episode = bench.config.episode
    width = f" style='min-width:{3.3 * min(5, episode.turns * bench.config.breadth):.1f}rem'"
    kind = episode.settings.place.timing
    for number, task in enumerate(bench.tasks):
        plays = [bench.played.turns((task.id, sample)) for sample in range(bench.config.samples)]
        best = best_of([turn for play in plays for turn in play])
        speed = "" if best is None or best.speedup is None else f"{best.speedup:.2f}×"
        coverage = "" if best is None or best.coverage is None else percent(best.coverage)
        marks = "".join(f"<div class='cells'{width}>{''.join(map(_cell, play)) or '–'}</div>" for play in plays)
        code = ""
        if best is not None and best.code is not None and number < SHOWN_CODE:
            code = f"<details><summary>best answer</summary>{code_block(best.code)}</details>"
        rows.append(
            f"<tr><td class='wide'>{escape(task.id)}{_scaled(task)}{code}</td><td>{marks}</td>"
            f"<td class='r'>{speed}</td><td class='r'>{coverage}</td></tr>"
        )
    return (
        "<h2>Task by task</h2><p class='dim'>One line a sample, one cell a turn: the speedup of a correct answer "
        f"(pale: none), or why it is none. Then speedup (times {kind}) and coverage of the best.</p>"
        "<div class='scroll'><table class='steps'><tr><th>task</th><th>verdicts</th>"
        f"<th class='r'>best speedup</th><th class='r'>coverage</th></tr>{''.join(rows)}</table></div>"
    )


WORDS = {
    "incorrect": "wrong", "compile_error": "compile", "runtime_error": "fails", "timeout": "timeout",
    "out_of_memory": "memory", "hack": "hack", "unsupported": "unsupported",
}  # fmt: skip


def _cell(turn: Turn) -> str:
    """One verdict, as small as it can be read; the rest on hover."""
    status = turn.status
    speed = "" if turn.speedup is None else f"{turn.speedup:.2f}×"
    title = f"turn {turn.number}: {status.replace('_', ' ')} {speed}".strip()
    word = speed or WORDS.get(status, "right")
    if turn.code is None:
        word = "no code"
    slow = " slow" if turn.speedup is not None and turn.speedup <= 1 else ""
    return f"<i class='{escape(status)}{slow}' title='{escape(title)}'>{escape(word)}</i>"


def _scaled(task: Task) -> str:
    sizes = ", ".join(f"{name} {old} → {new}" for name, (old, new) in task.provenance.scaled.items())
    return f"<div class='dim'>shrunk: {escape(sizes)}</div>" if sizes else ""


def _left_out(bench: Bench) -> str:
    left_out = bench.resolved.left_out
    if not left_out:
        return ""
    rows = "".join(f"<tr><td>{escape(t)}</td><td class='wide'>{escape(why)}</td></tr>" for t, why in left_out.items())
    return f"<h2>Left out</h2><div class='scroll'><table class='steps'>{rows}</table></div>"


def _terms(bench: Bench) -> str:
    from drkernel.config import dump_config

    text = dump_config(bench.config)
    return f"<h2>Terms</h2><details><summary>config.yaml</summary><pre>{escape(text)}</pre></details>"
