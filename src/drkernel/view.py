"""A verdict in words: the figures, sentences and rows that the terminal, pages, feedback and agents' tools show.

Whoever shows a verdict lays these out and computes none of its own, so that no two places say different things.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from drkernel.verdict import Finding, Profile, ProfileRow, SourceLine, Verdict, printable

OWNERS = {"custom": "yours", "library": "PyTorch", "copy": "copy"}
"""whose a kernel or operator is, in a word"""


@dataclass(frozen=True)
class Figure:
    """A figure of a record."""

    name: str
    value: str
    """with its unit"""
    note: str
    """of what it is, and how certain"""

    @property
    def text(self) -> str:
        """Value and note."""
        return f"{self.value} {self.note}"


@dataclass(frozen=True)
class DeviceRow:
    """A kernel or operator of a profile."""

    name: str
    owner: str
    """custom, library or copy"""
    whose: str
    calls: str
    seconds: float
    time: str
    portion: float
    """of the profile's time, 0 to 1"""
    share: str
    limit: str
    """what bounds it and how near it is to that: 'memory 85%', 'memory from L2'"""
    roof: str
    """the same as a sentence; that its time is only a floor, where it has no price"""

    @classmethod
    def of(cls, row: ProfileRow) -> DeviceRow:
        """The row in words."""
        floor = f"at least (no price: {row.unpriced})" if row.unpriced else roof(row.bound, row.roofline)
        return cls(
            row.name, row.owner, OWNERS[row.owner], f"{row.calls}x", row.seconds, duration(row.seconds),
            min(1.0, row.share), percent(row.share), limit(row.bound, row.roofline), floor,
        )  # fmt: skip


@dataclass(frozen=True)
class DeviceTime:
    """Where the device time of one call goes."""

    about: str
    """kind, device and host, and how long the call takes"""
    rows: tuple[DeviceRow, ...]
    """the costliest first"""
    profile: Profile

    @classmethod
    def of(cls, profile: Profile) -> DeviceTime:
        """The profile in words."""
        rows = sorted(profile.rows, key=lambda row: -row.seconds)
        host = f"; host: {profile.host}" if profile.host else ""
        busy = f", {duration(profile.total_seconds)} on the device" if profile.host else ""
        about = f"({profile.kind}, {profile.device}{host}): {duration(profile.elapsed_seconds)}{busy}"
        return cls(about, tuple(map(DeviceRow.of, rows)), profile)

    def rest(self, shown: int) -> tuple[str, str] | None:
        """How many rows there are beyond the costliest ``shown``, and their time; None where there are none."""
        left = sorted((row.seconds for row in self.profile.rows), reverse=True)[shown:]
        return (f"{len(left)} more", duration(sum(left))) if left else None


@dataclass(frozen=True)
class VerdictView:
    """A verdict in words. Texts are empty where the verdict has nothing of the kind."""

    figures: tuple[Figure, ...]
    host: str
    """what another host would change of the speedup"""
    sizes: str
    exactness: str
    wrong: str
    """the worst element, or why outputs could not be compared"""
    error: str
    findings: tuple[tuple[Finding, str], ...]
    """with the sentence of each"""
    profile: DeviceTime | None
    reference: DeviceTime | None

    @classmethod
    def of(cls, verdict: Verdict, whose: str = "the candidate's") -> VerdictView:
        """The verdict in words; ``whose`` the kernels are."""
        error = verdict.error
        where = f" at line {error.line}" if error is not None and error.line else ""
        return cls(
            tuple(_figures(verdict, whose)),
            verdict.speedup.host_note if verdict.speedup is not None else "",
            sizes_text(verdict),
            _exactness(verdict),
            _wrong(verdict),
            "" if error is None else f"{error.type}{where}: {error.message.strip()}",
            tuple((one, one.message + f" (seen on {one.seen_on})" * bool(one.seen_on)) for one in verdict.findings),
            None if verdict.profile is None else DeviceTime.of(verdict.profile),
            None if verdict.reference_profile is None else DeviceTime.of(verdict.reference_profile),
        )

    def figure(self, name: str) -> Figure | None:
        """The figure of a name; None where the verdict has none."""
        return next((one for one in self.figures if one.name == name), None)


def _figures(verdict: Verdict, whose: str) -> Iterator[Figure]:
    speedup, own, theirs = verdict.speedup, verdict.timing, verdict.reference_timing
    if speedup is not None:
        interval = f"[{times(speedup.low)}, {times(speedup.high)}] {speedup.confidence:.0%}"
        took, on = "", verdict.device
        if own is not None and theirs is not None:
            took, on = f"{duration(theirs.seconds)} ({verdict.baseline}) -> {duration(own.seconds)}, ", own.device
        yield Figure("speedup", f"{times(speedup.value)}x", f"{interval}: {took}{speedup.kind} on {on}")
    if verdict.coverage is not None:
        said = ", says its own process" if verdict.coverage_source == "runner" else ""
        counted, taken = percent(verdict.coverage), verdict.profile and percent(verdict.profile.coverage)
        needed = "" if taken in (None, counted) else f" that the answer needs; all own kernels take {taken}"
        yield Figure("coverage", counted, f"of the device time is in {whose} own kernels{needed}{said}")
    checked = verdict.correctness
    if checked is not None and checked.checked_calls:
        known = checked.max_error is not None and checked.passed_calls
        error = f", worst error {number(checked.max_error or 0.0)} of what is allowed" if known else ""
        yield Figure("checked", f"{checked.passed_calls}/{checked.checked_calls}", f"calls right{error}")


def _wrong(verdict: Verdict) -> str:
    if verdict.correctness is None or verdict.correctness.mismatch is None:
        return (verdict.correctness and verdict.correctness.message) or ""
    worst = verdict.correctness.mismatch
    actual, expected = told_apart(worst.actual, worst.expected)
    return (
        f"worst element: output {worst.output}{list(worst.index)} is {actual}, expected {expected} "
        f"± {number(worst.tolerance)}; {percent(worst.wrong_fraction)} of the elements are wrong"
    )


def _exactness(verdict: Verdict) -> str:
    """The outcome of the exact comparison in words; empty where none was made."""
    found = verdict.exactness
    if found is None:
        return ""
    if found.outcome == "proved":
        but = f", {found.why}" if found.why else ""
        return f"proved equal to the reference in {found.elements:,} elements, precision apart{but}"
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


def quote_line(source: str | None, line: int | None, around: int = 2) -> str:
    """The lines of ``source`` around ``line``, numbered, the line itself marked; empty when not known."""
    if source is None or line is None:
        return ""
    lines = source.splitlines()
    if not 1 <= line <= len(lines):
        return ""
    near = range(max(1, line - around), min(len(lines), line + around) + 1)
    return "\n".join(
        f"{'>' if n == line else ' '} {n:4d} | {printable(lines[n - 1][:200])}"
        for n in near
        if n == line or lines[n - 1].strip()
    )


def limit(bound: str | None, roofline: float | None) -> str:
    """What bounds a kernel, and how near it is to its roof; beyond that of device memory only L2 can bring it."""
    if roofline is None or bound == "latency":
        return bound or ""
    return f"{bound or ''} {percent(roofline) if roofline <= 1 else 'from L2'}".strip()


def roof(bound: str | None, roofline: float | None) -> str:
    """The same, spelled out."""
    near = "" if roofline is None or bound == "latency" else "beyond its roof: bytes were still in L2"
    near = f"{percent(roofline)} of roofline" if near and roofline is not None and roofline <= 1 else near
    return ", ".join(filter(None, (f"{bound}-bound" if bound else "", near)))


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


# ---- figures in words


def number(value: float) -> str:
    """A number with four significant digits."""
    return f"{value:.4g}"


def counts(values: Mapping[str, int]) -> str:
    """Counts by name, the greatest first."""
    return ", ".join(f"{name} {number}" for name, number in sorted(values.items(), key=lambda item: -item[1]))


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


def duration(seconds: float) -> str:
    """Seconds in a readable unit."""
    for factor, unit in ((1e-6, "us"), (1e-3, "ms")):
        if seconds < 1000 * factor:
            return f"{seconds / factor:.2f} {unit}"
    return f"{seconds:.3f} s"
