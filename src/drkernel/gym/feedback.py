"""The text that a model reads after its answer was graded: a pure function of the verdict.

The decisive fact comes first: the compiler's message with the source line, the index and values of the worst mismatch,
the condemning finding, or the time per kernel and the operators that still run in PyTorch. Texts are bounded in
characters. They reveal one expected value at most (the worst element's), and no seed, because verdicts contain none.
"""

from collections.abc import Iterable
from typing import Literal

from drkernel.gym.kernelgym import report_json
from drkernel.verdict import CandidateError, Correctness, Profile, Verdict
from drkernel.view import DeviceTime, VerdictView, facts, percent, place, quote_line, times, told_apart

Style = Literal["full", "compact", "kernelgym"]
MAX_ROWS = 8
MIN_BUDGET = 40
_HEAD: dict[str, str] = {
    "correct": "Correct.",
    "incorrect": "Wrong result.",
    "compile_error": "It does not compile.",
    "runtime_error": "It failed while running.",
    "timeout": "It ran out of time and was stopped.",
    "out_of_memory": "It ran out of memory.",
    "hack": "Rejected: it does not do the work it claims to do.",
    "unsupported": "The grading device cannot run this kind of kernel.",
    "invalid_request": "The task could not be graded; this says nothing about the answer.",
    "infra_error": "The grader failed; this says nothing about the answer.",
}


HOTTEST = 3
"""source lines shown to a model"""
WORTH_SHOWING = 0.05
"""a line is shown when its share of the launch is at least this"""


def feedback(
    verdict: Verdict,
    budget: int = 3000,
    *,
    style: Style = "full",
    source: str | None = None,
    reward: float | None = None,
) -> str:
    """Describe ``verdict`` to the model in at most ``budget`` characters.

    ``source`` is the graded candidate; with it, an error's line is quoted. ``compact`` gives one or two short lines,
    for a model with little context; ``kernelgym`` the whole result as JSON, with the turn's ``reward``. Raises
    ``ValueError`` for a budget under 40 characters.
    """
    if budget < MIN_BUDGET:
        raise ValueError(f"a feedback budget of {budget} characters is too small; the least is {MIN_BUDGET}")
    if style == "compact":
        return shorten(_compact(verdict, source), budget)
    if style == "kernelgym":
        return shorten(report_json(verdict, reward, budget), budget)
    return join_within(_full(verdict, source), budget)


def shorten(text: str, budget: int) -> str:
    """``text`` cut to ``budget`` characters, the cut marked."""
    return text if len(text) <= budget else text[: budget - 3].rstrip() + "..."


def join_within(parts: Iterable[str], budget: int) -> str:
    """Paragraphs in order of importance, joined while they fit; the first one that does not fit is shortened."""
    text = ""
    for part in filter(None, parts):
        separator = "\n" if text else ""
        room = budget - len(text) - len(separator)
        if len(part) <= room or room >= MIN_BUDGET:
            text += separator + shorten(part, room)
        if len(part) > room:
            break
    return text


# ---- full


_LABELS = {"hack": "Evidence", "bug": "Bug", "note": "Note"}


def _full(verdict: Verdict, source: str | None) -> list[str]:
    """Paragraphs, the decisive one first."""
    view = VerdictView.of(verdict, "your")
    found = {
        severity: [f"{label} ({one.kind}): {text}" for one, text in view.findings if one.severity == severity]
        for severity, label in _LABELS.items()
    }
    parts = [_HEAD[verdict.status]]
    table = "" if view.profile is None else profile_table(view.profile)
    if verdict.status == "hack":
        parts += found["hack"]
    elif verdict.error is not None:
        trace = (verdict.error.traceback or "").strip()
        parts += [view.error, quote_line(source, verdict.error.line), "" if trace in view.error else trace]
    elif verdict.status == "incorrect" and verdict.correctness is not None:
        checked = view.figure("checked")
        parts += [_sentence(view.wrong), _sentence(checked.text if checked is not None else ""), view.sizes]
    if verdict.status == "correct":
        parts += [*_speed_text(verdict, view), table]
        if verdict.profile is not None:
            left = ", ".join(still_library(verdict.profile))
            parts += [hot_lines(verdict.profile)]
            parts += [f"Still done by PyTorch: {left}. Move this work into your kernels." if left else ""]
    parts += [*found["bug"], *found["note"]]
    if verdict.status != "correct":
        parts += [table if verdict.error is None else ""]
        parts += ["It printed (end):\n" + verdict.stdout.strip()[-400:] if verdict.stdout.strip() else ""]
    return parts


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}." if text else ""


def _speed_text(verdict: Verdict, view: VerdictView) -> list[str]:
    speedup, coverage = view.figure("speedup"), view.figure("coverage")
    proved = verdict.exactness is not None and verdict.exactness.outcome == "proved"
    return [
        f"Speedup {speedup.text}." if speedup is not None else "", f"It {view.host}." if view.host else "", view.sizes,
        f"{coverage.text}." if coverage is not None else "", f"It is {view.exactness}." if proved else "",
    ]  # fmt: skip


def profile_table(device: DeviceTime) -> str:
    """Where the time goes, the largest first, in fixed columns."""
    rows = device.rows[:MAX_ROWS]
    if not rows:
        return "No device work was seen."
    width = min(40, max(len(row.name) for row in rows))
    lines = [f"Device time ({device.profile.kind}):"]
    for row in rows:
        text = f"  {row.name[:width]:<{width}}  {row.whose:<7}  {row.calls:>4}  {row.time:>9}  {row.share:>5}"
        lines.append(f"{text}  {row.roof}".rstrip())
    rest = device.rest(MAX_ROWS)
    return "\n".join([*lines, f"  {rest[0]}: {rest[1]}"] if rest else lines)


def hot_lines(profile: Profile) -> str:
    """The costliest lines of the slowest kernel; empty when the profile has none."""
    details = [(row.seconds, row.detail) for row in profile.rows if row.detail is not None]
    if not details:
        return ""
    _, detail = max(details, key=lambda each: each[0])
    lines = [line for line in detail.lines if line.share >= WORTH_SHOWING][:HOTTEST]
    rows = [f"  {percent(line.share)} {place(line)} `{line.text}`: {', '.join(facts(line))}" for line in lines]
    return "\n".join([f"Lines of {detail.kernel} by share of its time (modelled):", *rows]) if rows else ""


def still_library(profile: Profile) -> list[str]:
    """Names of the PyTorch operators in the profile, the most expensive first."""
    rows = [row for row in profile.rows if row.owner == "library"]
    return [row.name for row in sorted(rows, key=lambda row: -row.seconds)][:MAX_ROWS]


# ---- compact


def _compact(verdict: Verdict, source: str | None) -> str:
    if verdict.status == "hack":
        kinds = [finding.kind for finding in verdict.findings if finding.severity == "hack"]
        return f"hack: {', '.join(dict.fromkeys(kinds))}"
    if verdict.error is not None:
        return f"{verdict.status}: {_compact_error(verdict.error, source)}"
    if verdict.status == "incorrect" and verdict.correctness is not None:
        return f"wrong: {_compact_mismatch(verdict.correctness)}"
    if verdict.status == "correct":
        return f"correct {_compact_speed(verdict)}".rstrip()
    return verdict.status


def _compact_error(error: CandidateError, source: str | None) -> str:
    message = " ".join(error.message.split())[:120]
    text = f"{error.type}: {message}" if message else error.type
    lines = dict(enumerate((source or "").splitlines(), 1))
    at = lines.get(error.line) if error.line is not None else None
    return text if at is None else f"{text}\nline {error.line}: {at.strip()[:80]}"


def _compact_mismatch(correctness: Correctness) -> str:
    worst = correctness.mismatch
    if worst is None:
        return correctness.message or "output"
    index = ",".join(map(str, worst.index))
    actual, expected = told_apart(worst.actual, worst.expected)
    return f"[{index}] {actual} not {expected}, {percent(worst.wrong_fraction)} wrong"


_NO_SPEEDUP = {
    "unpriced_operator": "unpriced operator",
    "baseline_not_compiled": "the reference does not compile",
    "size_dependent": "other work at own sizes",
    "data_dependent": "depends on data",
}


def _compact_speed(verdict: Verdict) -> str:
    parts = []
    if verdict.speedup is not None:
        parts.append(f"{times(verdict.speedup.value)}x")
    if verdict.coverage is not None:
        parts.append(f"cover {percent(verdict.coverage)}")
    kinds = {finding.kind for finding in verdict.findings}
    parts += [f"no speedup: {why}" for kind, why in _NO_SPEEDUP.items() if kind in kinds]
    left = still_library(verdict.profile) if verdict.profile is not None else []
    text = " ".join(parts) + _compact_sizes(verdict)
    if left:
        text += "\ntorch: " + " ".join(name.removeprefix("aten.") for name in left[:4])
    bugs = [finding.kind for finding in verdict.findings if finding.severity == "bug"]
    return text + ("\nbug: " + ", ".join(dict.fromkeys(bugs)) if bugs else "")


def _compact_sizes(verdict: Verdict) -> str:
    """The timed and the checked sizes, where they differ; only the dimensions that do."""
    timed, checked = verdict.timed_at, verdict.checked_at
    if timed is None or checked is None or timed.inputs == checked.inputs:
        return ""
    changed = {name: pair for name, pair in checked.changed.items() if timed.changed.get(name) != pair}
    if timed.changed or not changed:
        return f"\ntimed at {timed.words}, checked at {checked.words}"
    sizes = [", ".join(f"{name} {pair[which]}" for name, pair in changed.items()) for which in (0, 1)]
    return f"\ntimed at {sizes[0]}, checked at {sizes[1]}"
