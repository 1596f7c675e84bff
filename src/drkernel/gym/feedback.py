"""The text that a model reads after its answer was graded: a pure function of the verdict.

The decisive fact comes first: the compiler's message with the source line, the index and values of the worst mismatch,
the condemning finding, or the time per kernel and the operators that still run in PyTorch. Texts are bounded in
characters. They reveal one expected value at most (the worst element's), and no seed, because verdicts contain none.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

from drkernel.gym.kernelgym import report_json
from drkernel.verdict import (
    CandidateError,
    Correctness,
    Finding,
    Profile,
    ProfileRow,
    SourceLine,
    Verdict,
    printable,
)

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
        if len(part) <= room:
            text += separator + part
            continue
        if room >= MIN_BUDGET:
            text += separator + shorten(part, room)
        break
    return text


# ---- full


def _full(verdict: Verdict, source: str | None) -> list[str]:
    """Paragraphs, the decisive one first."""
    parts = [_HEAD[verdict.status]]
    if verdict.status == "hack":
        parts += [_finding_text(finding) for finding in verdict.findings if finding.severity == "hack"]
    elif verdict.error is not None:
        parts += _error_text(verdict.error, source)
    elif verdict.status == "incorrect" and verdict.correctness is not None:
        parts += [*_mismatch_text(verdict.correctness), sizes_text(verdict)]
    if verdict.status == "correct":
        parts += _speed_text(verdict)
    parts += [_finding_text(finding) for finding in verdict.findings if finding.severity == "bug"]
    parts += [_finding_text(finding) for finding in verdict.findings if finding.severity == "note"]
    if verdict.status != "correct" and verdict.error is None and verdict.profile is not None:
        parts.append(profile_table(verdict.profile))
    if verdict.stdout.strip() and verdict.status != "correct":
        parts.append("It printed (end):\n" + verdict.stdout.strip()[-400:])
    return parts


def _finding_text(finding: Finding) -> str:
    label = {"hack": "Evidence", "bug": "Bug", "note": "Note"}[finding.severity]
    return f"{label} ({finding.kind}): {finding.message}"


def _error_text(error: CandidateError, source: str | None) -> list[str]:
    where = f" at line {error.line}" if error.line else ""
    parts = [f"{error.type}{where}: {error.message.strip()}"]
    quoted = quote_line(source, error.line)
    if quoted:
        parts.append(quoted)
    if error.traceback and error.traceback.strip() not in parts[0]:
        parts.append(error.traceback.strip())
    return parts


def quote_line(source: str | None, line: int | None, around: int = 2) -> str:
    """The lines of ``source`` around ``line``, numbered, the line itself marked; empty when not known."""
    if source is None or line is None:
        return ""
    lines = source.splitlines()
    if not 1 <= line <= len(lines):
        return ""
    first, last = max(1, line - around), min(len(lines), line + around)
    return "\n".join(
        f"{'>' if n == line else ' '} {n:4d} | {printable(lines[n - 1][:200])}" for n in range(first, last + 1)
    )


def _mismatch_text(correctness: Correctness) -> list[str]:
    parts = []
    worst = correctness.mismatch
    if worst is None and correctness.message:
        parts.append(correctness.message)
    if worst is not None:
        actual, expected = told_apart(worst.actual, worst.expected)
        parts.append(
            f"Worst element: output {worst.output} at index {list(worst.index)} is {actual}, expected "
            f"{expected} (allowed difference {number(worst.tolerance)}). "
            f"{percent(worst.wrong_fraction)} of the elements are out of tolerance."
        )
    parts.append(f"{correctness.passed_calls} of {correctness.checked_calls} checked calls passed.")
    return parts


def _speed_text(verdict: Verdict) -> list[str]:
    parts = []
    if verdict.speedup is not None and verdict.timing is not None and verdict.reference_timing is not None:
        speedup = verdict.speedup
        interval = f" (95% interval {speedup.low:.2f} to {speedup.high:.2f})" if speedup.kind == "measured" else ""
        parts.append(
            f"Speedup {times(speedup.value)}x{interval}: {duration(verdict.timing.seconds)} against "
            f"{duration(verdict.reference_timing.seconds)} for PyTorch ({verdict.baseline}, {speedup.kind})."
        )
        if speedup.host_note:
            parts.append(f"It {speedup.host_note}.")
    sizes = sizes_text(verdict)
    if sizes:
        parts.append(sizes)
    if verdict.coverage is not None:
        parts.append(f"{coverage_text(verdict, 'your')}.")
    if verdict.exactness is not None and verdict.exactness.outcome == "proved":
        parts.append(f"It is {exactness_text(verdict)}.")
    if verdict.profile is not None:
        parts.append(profile_table(verdict.profile))
        parts.append(hot_lines(verdict.profile))
        left = still_library(verdict.profile)
        if left:
            parts.append(f"Still done by PyTorch: {', '.join(left)}. Move this work into your kernels.")
    return parts


def coverage_text(verdict: Verdict, whose: str = "the candidate's") -> str:
    """The verdict's coverage in words; where own kernels take more time than the part that counts, both."""
    assert verdict.coverage is not None
    counted, taken = percent(verdict.coverage), verdict.profile and percent(verdict.profile.coverage)
    text = f"{counted} of the device time is in {whose} own kernels"
    return text if taken in (None, counted) else f"{text} that the answer needs; all own kernels take {taken}"


def exactness_text(verdict: Verdict) -> str:
    """The outcome of the exact comparison in words; empty where none was made."""
    found = verdict.exactness
    if found is None:
        return ""
    if found.outcome == "proved":
        return f"proved equal to the reference in {found.elements:,} elements, precision apart"
    if found.outcome == "differs" and not found.differ:
        return f"not what was asked: the answer does not follow {', '.join(found.ignored)}"
    if found.outcome == "differs":
        return f"not what was asked: {found.differ:,} of {found.elements:,} elements differ in exact arithmetic"
    return f"not decided exactly ({found.why})"


def sizes_text(verdict: Verdict) -> str:
    """The timed and the checked sizes, where they differ or are not the task's own; else empty."""
    timed, checked = verdict.timed_at, verdict.checked_at
    text = ""
    if timed is not None and checked is not None and timed.inputs != checked.inputs:
        text = f"Timed at {timed.words}; checked at {checked.words}."
    elif checked is not None and checked.changed:
        changed = ", ".join(f"{name} {used} (the task's: {own})" for name, (own, used) in checked.changed.items())
        text = f"{'Checked' if timed is None else 'Timed and checked'} at {checked.words}: {changed}."
    return f"{text} {verdict.untimed[:1].upper()}{verdict.untimed[1:]}.".strip() if verdict.untimed else text


def profile_table(profile: Profile, rows: int = MAX_ROWS) -> str:
    """Where the time goes, the largest first, in fixed columns."""
    if not profile.rows:
        return "No device work was seen."
    ordered = sorted(profile.rows, key=lambda row: -row.seconds)
    width = min(40, max(len(row.name) for row in ordered[:rows]))
    lines = [f"Device time ({profile.kind}):"]
    lines += [_row_text(row, width) for row in ordered[:rows]]
    if len(ordered) > rows:
        rest = sum(row.seconds for row in ordered[rows:])
        lines.append(f"  {len(ordered) - rows} more: {duration(rest)}")
    return "\n".join(lines)


def _row_text(row: ProfileRow, width: int) -> str:
    owner = {"custom": "yours", "library": "PyTorch", "copy": "copy"}[row.owner]
    text = f"  {row.name[:width]:<{width}}  {owner:<7}  {row.calls:3d}x"
    text += f"  {duration(row.seconds):>9}  {percent(row.share):>5}"
    if row.roofline is not None:
        text += f"  {percent(row.roofline)} of roofline"
    if row.unpriced:
        return f"{text}, at least (no price: {row.unpriced})"
    return text + (f", {row.bound}-bound" if row.bound else "")


def hot_lines(profile: Profile) -> str:
    """The costliest lines of the slowest kernel; empty when the profile has none."""
    details = [(row.seconds, row.detail) for row in profile.rows if row.detail is not None]
    if not details:
        return ""
    _, detail = max(details, key=lambda each: each[0])
    lines = [line for line in detail.lines if line.share >= WORTH_SHOWING][:HOTTEST]
    rows = [f"  {percent(line.share)} {place(line)} `{line.text}`: {', '.join(facts(line))}" for line in lines]
    return "\n".join([f"Lines of {detail.kernel} by share of its time (modelled):", *rows]) if rows else ""


def facts(line: SourceLine) -> list[str]:
    """A line's demands on the GPU, each in a few words."""
    found = []
    if line.bytes_asked:
        found.append(f"{size(line.bytes_asked)} asked")
        if line.bytes_asked > 1.05 * line.bytes_used:
            found.append(f"{size(line.bytes_used)} used")
        elif line.bytes_unique and line.bytes_asked > 1.05 * line.bytes_unique:
            found.append(f"{size(line.bytes_unique)} distinct")
    if line.sectors_per_request is not None:
        sectors = f"{line.sectors_per_request:.3g}"
        found.append(f"{sectors} sector{'s' * (sectors != '1')} a request")
        if line.coalesced_seconds is not None and line.sectors_needed is not None:
            found[-1] += f" where {line.sectors_needed:.2g} suffice{'s' * (f'{line.sectors_needed:.2g}' == '1')}"
    if line.operations:
        found.append(f"{count(line.operations)} operations")
    if line.atomics:
        found.append(f"{count(line.atomics)} atomic updates")
    return found


def place(line: SourceLine) -> str:
    """``file:line``, and the line that called it."""
    called = "".join(f" (called at line {caller.rpartition(':')[2]})" for caller in line.callers[:1])
    return f"{Path(line.file).name}:{line.line}{called}"


def size(nbytes: float) -> str:
    """Bytes in a readable unit (powers of 1024)."""
    for factor, unit in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if nbytes >= factor:
            return f"{nbytes / factor:.3g} {unit}" if nbytes < 1000 * factor else f"{nbytes / factor:.0f} {unit}"
    return f"{nbytes:.0f} B"


def count(number: float) -> str:
    """A large number in a readable unit."""
    for factor, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= factor:
            return f"{number / factor:.3g} {unit}"
    return f"{number:.0f}"


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
    if source is not None and error.line is not None:
        lines = source.splitlines()
        if 1 <= error.line <= len(lines):
            text += f"\nline {error.line}: {lines[error.line - 1].strip()[:80]}"
    return text


def _compact_mismatch(correctness: Correctness) -> str:
    worst = correctness.mismatch
    if worst is None:
        return correctness.message or "output"
    index = ",".join(map(str, worst.index))
    actual, expected = told_apart(worst.actual, worst.expected)
    return f"[{index}] {actual} not {expected}, {percent(worst.wrong_fraction)} wrong"


def _compact_speed(verdict: Verdict) -> str:
    parts = []
    if verdict.speedup is not None:
        parts.append(f"{times(verdict.speedup.value)}x")
    if verdict.coverage is not None:
        parts.append(f"cover {percent(verdict.coverage)}")
    if any(finding.kind == "unpriced_operator" for finding in verdict.findings):
        parts.append("no speedup: unpriced operator")
    if any(finding.kind == "baseline_not_compiled" for finding in verdict.findings):
        parts.append("no speedup: the reference does not compile")
    if any(finding.kind == "size_dependent" for finding in verdict.findings):
        parts.append("no speedup: other work at own sizes")
    if any(finding.kind == "data_dependent" for finding in verdict.findings):
        parts.append("no speedup: depends on data")
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


# ---- figures in words


def number(value: float) -> str:
    """A number with four significant digits."""
    return f"{value:.4g}"


def told_apart(first: float, second: float) -> tuple[str, str]:
    """Two numbers with as many significant digits (4 to 9) as are needed to tell them apart."""
    gap, size = abs(first - second), max(abs(first), abs(second))
    known = math.isfinite(gap) and gap > 0
    digits = min(9, max(4, 2 + math.ceil(math.log10(size / gap)))) if known else 4
    return f"{first:.{digits}g}", f"{second:.{digits}g}"


def times(ratio: float) -> str:
    """A speedup with two decimals, or with two significant digits when two decimals would show nothing."""
    return f"{ratio:.2f}" if ratio >= 0.095 or ratio <= 0 else f"{ratio:.2g}"


def percent(share: float) -> str:
    """A fraction as a percentage that is 0% or 100% only when it truly is."""
    if math.isnan(share):
        return "?%"
    if 0 < share < 0.01:
        return "<1%"
    if 0.99 < share < 1:
        return ">99%"
    return f"{100 * share:.0f}%"


def of_roofline(share: float) -> str:
    """How near a row is to its roof; beyond that of device memory only L2 can bring it."""
    return f"{percent(share)} of roofline" if share <= 1 else "beyond its roof: bytes were still in L2"


def duration(seconds: float) -> str:
    """Seconds in a readable unit."""
    for factor, unit in ((1e-6, "us"), (1e-3, "ms")):
        if seconds < 1000 * factor:
            return f"{seconds / factor:.2f} {unit}"
    return f"{seconds:.3f} s"
