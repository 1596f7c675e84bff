"""Shows how a kernel was found, as one self-contained HTML page: the curve over turns, every attempt, the winner."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from markupsafe import Markup

from drkernel.config import ConfigError, dump_config
from drkernel.episode.context import make_policy
from drkernel.episode.meter import JournalEntry, money
from drkernel.episode.records import Message, Turn, Usage
from drkernel.episode.renderer import Prompts
from drkernel.gym.device import gpu_name
from drkernel.report.render import Beside, Curve, line_plot, nice_range, render, side_by_side
from drkernel.solve.bench import Bench
from drkernel.solve.verify import Verified, winner
from drkernel.task import Task, sized_reference
from drkernel.verdict import Verdict
from drkernel.view import Figure, VerdictView, duration, percent

VERIFIED = "verification.json"


def keep_verified(directory: Path, tried: Sequence[Verified]) -> None:
    """Write what was verified into a search's directory, for every page of it from now on."""
    rows = [{"turn": one.turn.id, "verdict": one.verdict.model_dump(mode="json")} for one in tried]
    (directory / VERIFIED).write_text(json.dumps(rows) + "\n", encoding="utf-8")


def page(bench: Bench, live: bool = False) -> str:
    """The page as text."""
    turns = bench.played.turns(bench.keys[0])
    made, kept = {turn.id: turn for turn in turns}, bench.directory / VERIFIED
    rows = json.loads(kept.read_text(encoding="utf-8")) if kept.is_file() else []
    tried = [Verified(made[row["turn"]], Verdict.model_validate(row["verdict"])) for row in rows if row["turn"] in made]
    task, best = bench.tasks[0], winner(tried)
    settings = bench.config.episode.settings
    branched = any(turn.branch for turn in turns)
    return render(
        "solve",
        live=live,
        task=task,
        model=bench.model,
        turns=turns,
        names={turn.id: turn.label(branched) for turn in turns},
        tried=tried,
        best=best,
        view=VerdictView.of(best.verdict) if best is not None else None,
        numbers=_numbers(bench, turns, best),
        place=settings.place,
        gpu=gpu_name(settings.place),
        led=_led(bench),
        ending=_ending(bench.played.ended.get(bench.keys[0])),
        curve=_curve(turns),
        in_short=in_short,
        opening=opening(bench, task),
        changes=_changes(turns),
        reference=sized_reference(task, settings.for_task(task).profile),
        config=dump_config(bench.config),
    )


def opening(bench: Bench, task: Task) -> list[Message]:
    """The messages that a conversation about a task begins with; empty where the run's prompts are not kept."""
    try:
        prompts = Prompts.load(str(bench.directory / "prompts"))
    except ConfigError:
        return []
    return prompts.opening(task, bench.config.episode.settings)


@dataclass(frozen=True)
class Change:
    """The changes that an attempt made to the answer before it."""

    since: str
    """Id of the last answer with code among those that the attempt was shown."""
    rows: list[Beside]


def _changes(turns: Sequence[Turn]) -> dict[str, Change]:
    """The changes of the attempts that were shown an answer with code, by the attempt's id."""
    made = {turn.id: turn for turn in turns}
    found = {}
    for turn in turns:
        since = next((name for name in reversed(turn.shown) if name in made and made[name].code), None)
        if since is not None and turn.code is not None:
            rows = side_by_side(made[since].code or "", turn.code)
            if rows:
                found[turn.id] = Change(since, rows)
    return found


def _numbers(bench: Bench, turns: Sequence[Turn], best: Verified | None) -> list[Figure]:
    """The figures at the top."""
    usage = sum((turn.reply.usage for turn in turns), Usage())
    prices = bench.config.prices
    items: list[Figure] = []
    if best is not None:
        items = [*VerdictView.of(best.verdict).figures, Figure("turn it was found at", str(best.turn.number), "")]
    items.append(Figure("tokens read and written", f"{usage.total:,}", "estimated" if usage.estimated else ""))
    return [*items, Figure("paid", money(prices.cost(usage)), "")] if prices is not None else items


ENDINGS = {
    "turns": "It made all the turns it was given",
    "target": "It stopped because the target speedup was reached",
    "context": "It stopped because the conversation no longer fitted the model's context",
    "answered": "It stopped of its own accord",
    "budget": "It stopped",
    "model_error": "It stopped because the model gave no answer",
    "infra_error": "It stopped because the grader failed",
    "interrupted": "It was stopped by hand",
}


def _led(bench: Bench) -> str:
    """Describe how the search was conducted, in a sentence."""
    config = bench.config
    led = f"Up to {config.episode.turns} turns"
    led += f", {config.breadth} answers each, the best of which went on" if config.breadth > 1 else ""
    return f"{led}; of earlier turns the conversation held {make_policy(config.episode.context).words}."


def _ending(ended: JournalEntry | None) -> str:
    """Why the search ended, without the full stop."""
    end = ENDINGS["interrupted" if ended is None or ended.end is None else ended.end]
    return f"{end}: {ended.detail}" if ended is not None and ended.detail else end


def _curve(made: Sequence[Turn]) -> Markup | None:
    """Speedup of every turn's best answer and of the best so far, against turns; None without a correct answer."""
    turns = sorted({turn.number for turn in made})
    each: list[float | None] = []
    best: list[float | None] = []
    for number in turns:
        each.append(max((turn.speedup for turn in made if turn.number == number and turn.speedup), default=None))
        so_far = [value for value in each if value is not None]
        best.append(max(so_far) if so_far else None)
    found = [value for value in each if value is not None]
    if not found:
        return None
    return line_plot(
        [Curve("best so far", turns, best), Curve("this turn (gaps: not correct)", turns, each)],
        x_label="turn",
        y_label="speedup (dashed: PyTorch)",
        y_range=nice_range(min([1.0, *found]), max([1.0, *found])),
        guide_y=1.0,
    )


def in_short(verdict: Verdict) -> str:
    """One line on the outcome of an answer."""
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
