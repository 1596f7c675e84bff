"""How a kernel was found, as one self-contained HTML page: the curve over turns, every attempt, the winner."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from html import escape
from pathlib import Path

from drkernel.episode.chat import Usage
from drkernel.episode.context import make_policy
from drkernel.episode.journal import Entry
from drkernel.episode.meter import money
from drkernel.episode.metrics import baseline_name
from drkernel.episode.records import Turn
from drkernel.gym.device import gpu_name, parse_device
from drkernel.gym.feedback import duration, percent
from drkernel.report import run as run_page
from drkernel.report import verdict_html
from drkernel.report.svg import Line, line_plot, nice_range
from drkernel.solve.bench import Bench, read_bench
from drkernel.solve.verify import Verified, winner
from drkernel.task import sized_reference
from drkernel.verdict import Verdict

STYLE = (
    verdict_html.STYLE
    + run_page.STYLE
    + """
.steps td, .steps th { vertical-align: top; padding-right: 1.1rem; white-space: nowrap; }
.steps td.wide { white-space: normal; min-width: 16rem; } .steps tr.best td { font-weight: 600; }
figure { max-width: 38rem; } .steps details > summary { margin: 0; }
.tag { display: inline-block; padding: 0 .5em; border-radius: .3em; color: #fff; background: #b3362c; }
.cells { display: flex; flex-wrap: wrap; gap: 2px; margin-bottom: 3px; max-width: 40rem; }
.cells i { font-style: normal; font-size: 11px; min-width: 3.1rem; text-align: center; color: #fff; background: #b3362c;
border-radius: 2px; } .cells i.correct { background: #23814c; } .cells i.hack { background: #7d3aa0; }
.cells i.slow { background: #7fa98f; } .cells i.incorrect { background: #c06a1a; }
td.r { white-space: nowrap; } .tag.incorrect { background: #c06a1a; }
.tag.correct { background: #23814c; } .tag.hack { background: #7d3aa0; } .tag.infra_error { background: #946b00; }
.tag.unsupported { background: #3b6ea5; }
"""
)


def write_solve_report(directory: Path, tried: Sequence[Verified] | None = None) -> Path:
    """Write ``report.html`` into a search's directory; its path.

    ``tried`` is kept in ``verification.json``, so that the page can be made again without it.
    Raises :class:`~drkernel.config.ConfigError` when the directory is no run.
    """
    bench = read_bench(directory)
    made = {turn.id: turn for turn in bench.played.turns(bench.keys[0])}
    kept = directory / "verification.json"
    if tried is not None:
        rows = [{"turn": one.turn.id, "verdict": one.verdict.model_dump(mode="json")} for one in tried]
        kept.write_text(json.dumps(rows) + "\n", encoding="utf-8")
    verified = [
        Verified(made[row["turn"]], Verdict.model_validate(row["verdict"]))
        for row in (json.loads(kept.read_text(encoding="utf-8")) if kept.is_file() else [])
        if row["turn"] in made
    ]
    path = directory / "report.html"
    temporary = path.with_suffix(".html.tmp")
    temporary.write_text(page(bench, verified), encoding="utf-8")
    os.replace(temporary, path)
    return path


def page(bench: Bench, tried: Sequence[Verified]) -> str:
    """The page as text."""
    task, best = bench.tasks[0], winner(tried)
    turns = bench.played.turns(bench.keys[0])
    body = [
        f"<h1>A kernel for {escape(task.id)}</h1>",
        _headline(bench, turns, best),
        _ending(bench, bench.played.ended.get(bench.keys[0])),
        _curve(turns),
        _steps(turns, best),
        _verification(tried),
        _winner(bench, best),
        _terms(bench),
    ]
    return shell(f"drkernel solve {task.id}", "".join(body))


def shell(title: str, body: str) -> str:
    """A whole document."""
    return (
        "<!doctype html><html lang='en'><head><meta charset='utf-8'>"
        "<meta name='viewport' content='width=device-width, initial-scale=1'>"
        f"<title>{escape(title)}</title><style>{STYLE}</style></head><body>{body}</body></html>\n"
    )


def figures(items: Sequence[tuple[str, str]]) -> str:
    """Large numbers with what they are."""
    cells = "".join(f"<div><b>{escape(value)}</b><span>{escape(label)}</span></div>" for value, label in items)
    return f"<div class='figures'>{cells}</div>"


def tag(status: str) -> str:
    """A status as a coloured word."""
    return f"<span class='tag {escape(status)}'>{escape(status.replace('_', ' '))}</span>"


def timing_note(device: str) -> str:
    """Whether the page's times were measured or modelled."""
    place = parse_device(device)
    if place.simulated:
        return (
            f"<p class='note'>Every time on this page is <b>modelled</b> for an {escape(gpu_name(place))} by the "
            "simulator: no GPU was used. Correctness is real: kernels were executed.</p>"
        )
    return f"<p class='note'>Every time on this page was <b>measured</b> on {escape(device)}.</p>"


def _headline(bench: Bench, turns: Sequence[Turn], best: Verified | None) -> str:
    usage = sum((turn.reply.usage for turn in turns), Usage())
    prices = bench.config.prices
    text = (
        f"<p class='dim'>The task: write a Triton kernel that computes what a PyTorch module computes, faster. "
        f"{escape(bench.model)} made {len(turns)} attempts; after each one the grader ran the kernel on "
        "fresh inputs, timed it, and told the model what it saw.</p>"
    )
    items: list[tuple[str, str]] = []
    if best is not None:
        verdict = best.verdict
        if verdict.speedup is not None:
            kind = verdict.speedup.kind
            items.append((f"{verdict.speedup.value:.2f}×", f"as fast as {baseline_name(verdict.baseline)} ({kind})"))
        if verdict.timing is not None and verdict.reference_timing is not None:
            was = duration(verdict.reference_timing.seconds)
            items.append((duration(verdict.timing.seconds), f"a call, against {was}"))
        if verdict.correctness is not None:
            items.append(
                (f"{verdict.correctness.passed_calls}/{verdict.correctness.checked_calls}", "fresh inputs right")
            )
        if verdict.coverage is not None:
            items.append((percent(verdict.coverage), "of device time in its own kernels"))
        items.append((str(best.turn.number), "turn it was found at"))
    else:
        text += "<p class='warn'>No attempt was verified as correct.</p>"
    items.append((f"{usage.total:,}", "tokens read and written" + (" (estimated)" if usage.estimated else "")))
    if prices is not None:
        items.append((money(prices.cost(usage)), "paid"))
    return text + figures(items) + timing_note(bench.config.episode.settings.device)


ENDINGS = {
    "turns": "It made all the turns it was given",
    "target": "It stopped because the target speedup was reached",
    "context": "It stopped because the conversation no longer fitted the model's context",
    "budget": "It stopped",
    "model_error": "It stopped because the model gave no answer",
    "infra_error": "It stopped because the grader failed",
    "interrupted": "It was stopped by hand",
}


def _ending(bench: Bench, ended: Entry | None) -> str:
    """Why the search ended, and how it was led."""
    config = bench.config
    led = f"Up to {config.episode.turns} turns"
    led += f", {config.breadth} answers each, the best of which went on" if config.breadth > 1 else ""
    led += f"; of earlier turns the conversation held {make_policy(config.episode.context).words}. "
    end = ENDINGS["interrupted" if ended is None or ended.end is None else ended.end]
    detail = f": {escape(ended.detail)}" if ended is not None and ended.detail else ""
    return f"<p class='dim'>{led}{end}{detail}.</p>"


def _curve(made: Sequence[Turn]) -> str:
    """Speedup of every turn's best answer and of the best so far, against turns."""
    if not made:
        return ""
    turns = sorted({turn.number for turn in made})
    each: list[float | None] = []
    best: list[float | None] = []
    for number in turns:
        each.append(max((turn.speedup for turn in made if turn.number == number and turn.speedup), default=None))
        so_far = [value for value in each if value is not None]
        best.append(max(so_far) if so_far else None)
    found = [value for value in each if value is not None]
    if not found:
        return "<h2>Speedup over the turns</h2><p>No attempt was correct.</p>"
    plot = line_plot(
        [Line("best so far", turns, best), Line("this turn (gaps: not correct)", turns, each)],
        x_label="turn",
        y_label="speedup",
        y_range=nice_range(min([1.0, *found]), max([1.0, *found])),
    )
    return (
        "<h2>Speedup over the turns</h2><div class='plots'><figure><figcaption>Speedup of correct "
        f"answers; 1 is as fast as PyTorch</figcaption>{plot}</figure></div>"
    )


def _steps(turns: Sequence[Turn], best: Verified | None) -> str:
    rows = []
    names = {turn.id: turn.label(any(each.branch for each in turns)) for turn in turns}
    for turn in turns:
        won = best is not None and turn.id == best.turn.id
        speed = "" if turn.speedup is None else f"{turn.speedup:.2f}×"
        coverage = "" if turn.coverage is None else percent(turn.coverage)
        shown = ", ".join(names.get(name, name) for name in turn.shown)
        rows.append(
            f"<tr class='{'best' if won else ''}'><td>{names[turn.id]}</td><td>{tag(turn.status)}{' ★' if won else ''}"
            f"</td><td class='r'>{speed}</td><td class='r'>{coverage}</td>"
            f"<td class='r'>{'' if turn.reward is None else f'{turn.reward:.2f}'}</td>"
            f"<td class='r'>{turn.reply.usage.prompt:,}</td><td class='r'>{turn.reply.usage.completion:,}</td>"
            f"<td>{escape(shown) or 'none'}</td><td class='wide'>{_said(turn)}</td></tr>"
        )
    head = "".join(
        f"<th class='{css}'>{name}</th>"
        for name, css in (
            ("turn", ""), ("verdict", ""), ("speedup", "r"), ("coverage", "r"), ("reward", "r"), ("tokens read", "r"),
            ("written", "r"), ("was shown turns", ""), ("answer and feedback", ""),
        )
    )  # fmt: skip
    return (
        f"<h2>Every attempt</h2><div class='scroll'><table class='steps'><tr>{head}</tr>{''.join(rows)}</table></div>"
        "<p class='dim'>Coverage: the share of device time in kernels that the answer itself defines. Reward: what "
        "decides which turns are kept in the conversation. ★: the kernel that was chosen.</p>"
    )


def _said(turn: Turn) -> str:
    code = verdict_html.code_block(turn.code) if turn.code else f"<pre>{escape(turn.reply.text[:4000])}</pre>"
    return (
        f"<details><summary>{escape(in_short(turn.verdict))}</summary>{code}"
        f"<p class='dim'>what the model was told:</p><pre>{escape(turn.feedback)}</pre></details>"
    )


def in_short(verdict: Verdict) -> str:
    """One line on what came of an answer."""
    hacks = [finding.kind for finding in verdict.findings if finding.severity == "hack"]
    if hacks:
        return ", ".join(dict.fromkeys(hacks))
    if verdict.error is not None:
        lines = [line.strip() for line in verdict.error.message.splitlines() if line.strip(" ^")] or [""]
        said = lines[-1] if re.match(r"at \d+:\d+", lines[0]) else lines[0]  # Triton quotes the source first
        return f"{verdict.error.type}: {said}"[:120]
    if verdict.status == "incorrect" and verdict.correctness is not None:
        wrong = verdict.correctness.mismatch
        found = (
            verdict.correctness.message if wrong is None else f"{percent(wrong.wrong_fraction)} of an output is wrong"
        )
        return "; ".join(
            [found or "wrong", *dict.fromkeys(bug.kind for bug in verdict.findings if bug.severity == "bug")]
        )
    if verdict.timing is not None:
        return f"{duration(verdict.timing.seconds)} a call"
    return verdict.status.replace("_", " ")


def _verification(tried: Sequence[Verified]) -> str:
    if not tried:
        return ""
    rows = "".join(
        f"<tr><td>turn {one.turn.number}</td><td>{tag(one.verdict.status)}</td>"
        f"<td class='r'>{one.turn.speedup or 0:.2f}×</td><td class='r'>{one.speedup:.2f}×</td></tr>"
        for one in tried
    )
    return (
        "<h2>Verified from scratch</h2><p class='dim'>The fastest attempts graded once more, each in a fresh process "
        "with fresh secret inputs.</p><div class='scroll'><table><tr><th>attempt</th><th>verdict</th>"
        f"<th class='r'>speedup then</th><th class='r'>verified</th></tr>{rows}</table></div>"
    )


def _winner(bench: Bench, best: Verified | None) -> str:
    task = bench.tasks[0]
    source = sized_reference(task, bench.config.episode.settings.for_task(task).profile)
    reference = f"<details><summary>the PyTorch reference</summary>{verdict_html.code_block(source)}</details>"
    if best is None or best.turn.code is None:
        return f"<h2>The task</h2>{reference}"
    return (
        f"<h2>The kernel</h2>{verdict_html.code_block(best.turn.code)}{reference}"
        + verdict_html.profile_section("Device time of one call", best.verdict.profile)
        + verdict_html.profile_section("PyTorch's", best.verdict.reference_profile)
    )


def _terms(bench: Bench) -> str:
    from drkernel.config import dump_config

    text = escape(dump_config(bench.config))
    return f"<h2>Terms</h2><details><summary>config.yaml</summary><pre>{text}</pre></details>"
