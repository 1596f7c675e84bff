"""How a kernel was found, as one self-contained HTML page: the curve over turns, every attempt, the winner."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from html import escape
from pathlib import Path

from drkernel.episode.chat import Usage
from drkernel.episode.meter import money
from drkernel.episode.metrics import baseline_name
from drkernel.gym.device import gpu_name, parse_device
from drkernel.gym.feedback import duration, percent
from drkernel.report import run as run_page
from drkernel.report import verdict_html
from drkernel.report.svg import Line, line_plot, nice_range
from drkernel.solve.bench import BenchConfig, Ended, read_bench
from drkernel.solve.refine import Attempt
from drkernel.solve.verify import Verified, winner
from drkernel.task import Task, sized_reference
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
    config, tasks, state = read_bench(directory)
    attempts = state.turns((tasks[0].id, 0))
    ended = state.ended.get((tasks[0].id, 0))
    kept = directory / "verification.json"
    if tried is not None:
        rows = [{"position": one.attempt.position, "verdict": one.verdict.model_dump(mode="json")} for one in tried]
        kept.write_text(json.dumps(rows) + "\n", encoding="utf-8")
    by_position = {attempt.position: attempt for attempt in attempts}
    verified = [
        Verified(by_position[tuple(row["position"])], Verdict.model_validate(row["verdict"]))
        for row in (json.loads(kept.read_text(encoding="utf-8")) if kept.is_file() else [])
        if tuple(row["position"]) in by_position
    ]
    path = directory / "report.html"
    temporary = path.with_suffix(".html.tmp")
    temporary.write_text(page(config, tasks[0], attempts, verified, ended), encoding="utf-8")
    os.replace(temporary, path)
    return path


def page(
    config: BenchConfig,
    task: Task,
    attempts: Sequence[Attempt],
    tried: Sequence[Verified],
    ended: Ended | None = None,
) -> str:
    """The page as text."""
    best = winner(tried)
    body = [
        f"<h1>A kernel for {escape(task.id)}</h1>",
        _headline(config, task, attempts, best),
        _ending(config, ended),
        _curve(attempts),
        _steps(attempts, best),
        _verification(tried),
        _winner(task, config, best),
        _terms(config),
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


def _headline(config: BenchConfig, task: Task, attempts: Sequence[Attempt], best: Verified | None) -> str:
    usage = sum((attempt.reply.usage for attempt in attempts), Usage())
    settings = config.refine.settings
    text = (
        f"<p class='dim'>The task: write a Triton kernel that computes what a PyTorch module computes, faster. "
        f"{escape(config.model)} made {len(attempts)} attempts; after each one the grader ran the kernel on "
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
        items.append((str(best.attempt.turn), "turn it was found at"))
    else:
        text += "<p class='warn'>No attempt was verified as correct.</p>"
    items.append((f"{usage.total:,}", "tokens read and written" + (" (estimated)" if usage.estimated else "")))
    if config.prices is not None:
        items.append((money(config.prices.cost(usage)), "paid"))
    return text + figures(items) + timing_note(settings.device)


ENDINGS = {
    "turns": "It made all the turns it was given",
    "target": "It stopped because the target speedup was reached",
    "context": "It stopped because the conversation no longer fitted the model's context",
    "budget": "It stopped",
    "model_error": "It stopped because the model gave no answer",
    "infra_error": "It stopped because the grader failed",
    "interrupted": "It was stopped by hand",
}


def _ending(config: BenchConfig, ended: Ended | None) -> str:
    """Why the search ended, and how it was led."""
    refine = config.refine
    keep = refine.context.keep
    led = f"Up to {refine.turns} turns"
    led += f", {refine.breadth} answers each, the best of which went on" if refine.breadth > 1 else ""
    if keep is None:
        led += "; every turn stayed in the conversation. "
    else:
        led += (
            f"; after every {refine.context.turns_per_iteration} turns the conversation was cut to the best {keep} "
            "so far. "
        )
    end = ENDINGS["interrupted" if ended is None else ended.end]
    detail = f": {escape(ended.detail)}" if ended is not None and ended.detail else ""
    return f"<p class='dim'>{led}{end}{detail}.</p>"


def _curve(attempts: Sequence[Attempt]) -> str:
    """Speedup of every turn's best answer and of the best so far, against turns."""
    if not attempts:
        return ""
    turns = sorted({attempt.turn for attempt in attempts})
    each: list[float | None] = []
    best: list[float | None] = []
    for turn in turns:
        made = [attempt.speedup for attempt in attempts if attempt.turn == turn and attempt.speedup is not None]
        each.append(max(made) if made else None)
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


def _steps(attempts: Sequence[Attempt], best: Verified | None) -> str:
    rows = []
    for attempt in attempts:
        won = best is not None and attempt.position == best.attempt.position
        speed = "" if attempt.speedup is None else f"{attempt.speedup:.2f}×"
        coverage = "" if attempt.verdict.coverage is None else percent(attempt.verdict.coverage)
        name = f"{attempt.turn}" + (f".{attempt.branch + 1}" if attempt.branch or _broad(attempts) else "")
        shown = ", ".join(f"{turn}" + (f".{branch + 1}" if _broad(attempts) else "") for turn, branch in attempt.shown)
        rows.append(
            f"<tr class='{'best' if won else ''}'><td>{name}</td><td>{tag(attempt.verdict.status)}{' ★' if won else ''}"
            f"</td><td class='r'>{speed}</td><td class='r'>{coverage}</td>"
            f"<td class='r'>{'' if attempt.reward is None else f'{attempt.reward:.2f}'}</td>"
            f"<td class='r'>{attempt.reply.usage.prompt:,}</td><td class='r'>{attempt.reply.usage.completion:,}</td>"
            f"<td>{escape(shown) or 'none'}</td><td class='wide'>{_said(attempt)}</td></tr>"
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


def _broad(attempts: Sequence[Attempt]) -> bool:
    return any(attempt.branch for attempt in attempts)


def _said(attempt: Attempt) -> str:
    code = verdict_html.code_block(attempt.code) if attempt.code else f"<pre>{escape(attempt.reply.text[:4000])}</pre>"
    return (
        f"<details><summary>{escape(in_short(attempt.verdict))}</summary>{code}"
        f"<p class='dim'>what the model was told:</p><pre>{escape(attempt.feedback)}</pre></details>"
    )


def in_short(verdict: Verdict) -> str:
    """One line on what came of an answer."""
    cheats = [finding.kind for finding in verdict.findings if finding.severity == "cheat"]
    if cheats:
        return ", ".join(dict.fromkeys(cheats))
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
        f"<tr><td>turn {one.attempt.turn}</td><td>{tag(one.verdict.status)}</td>"
        f"<td class='r'>{one.attempt.speedup or 0:.2f}×</td><td class='r'>{one.speedup:.2f}×</td></tr>"
        for one in tried
    )
    return (
        "<h2>Verified from scratch</h2><p class='dim'>The fastest attempts graded once more, each in a fresh process "
        "with fresh secret inputs.</p><div class='scroll'><table><tr><th>attempt</th><th>verdict</th>"
        f"<th class='r'>speedup then</th><th class='r'>verified</th></tr>{rows}</table></div>"
    )


def _winner(task: Task, config: BenchConfig, best: Verified | None) -> str:
    profile = config.refine.settings.profile
    source = sized_reference(task, profile if profile in task.profiles else None)
    reference = f"<details><summary>the PyTorch reference</summary>{verdict_html.code_block(source)}</details>"
    if best is None or best.attempt.code is None:
        return f"<h2>The task</h2>{reference}"
    return (
        f"<h2>The kernel</h2>{verdict_html.code_block(best.attempt.code)}{reference}"
        + verdict_html.profile_section("Device time of one call", best.verdict.profile)
        + verdict_html.profile_section("PyTorch's", best.verdict.reference_profile)
    )


def _terms(config: BenchConfig) -> str:
    from drkernel.config import dump_config

    return f"<h2>Terms</h2><details><summary>config.yaml</summary><pre>{escape(dump_config(config))}</pre></details>"
