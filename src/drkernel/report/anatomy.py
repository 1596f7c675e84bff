"""Where modelled time goes, for pages: each kernel's source with shares by line, its limits, a bar of all time."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from markupsafe import Markup, escape

from drkernel.gym.feedback import duration, facts, percent
from drkernel.report.hot_lines import LIMITS, WORTH, binding, occupancy_text
from drkernel.report.sources import coloured
from drkernel.report.svg import legend
from drkernel.verdict import LaunchDetail, Profile, SourceLine

AROUND = 3
"""lines shown on either side when the enclosing function is unknown"""
STACK = ("dram", "l2", "sm_memory", "compute", "atomics", "chains", "dispatch", "fixed", "host")
COLOURS = {name: f"var(--c{k})" for k, name in enumerate(STACK, 1)} | {"host": "var(--line)"}
_OF_BOUND = {"memory": "dram", "compute": "compute", "latency": "chains"}

Read = Callable[[str], Sequence[str]]
"""reads the lines of a file; empty when it cannot be read"""
Marks = Mapping[tuple[str, int], str]
"""the finding at (file, line), in words"""


@dataclass(frozen=True)
class Row:
    """One source line as a page shows it."""

    number: int
    text: Markup
    share: float
    facts: str
    found: str
    """a finding at this line; empty for none"""


@dataclass(frozen=True)
class Listing:
    """A function of a kernel, with the shares of its lines."""

    title: str
    rows: tuple[Row, ...]


@dataclass(frozen=True)
class Limit:
    """One limit of a launch as a bar."""

    name: str
    share: float
    """share of the launch's time"""
    text: str
    binds: bool


@dataclass(frozen=True)
class Anatomy:
    """A kernel's slowest launch."""

    detail: LaunchDetail
    occupancy: str
    limits: tuple[Limit, ...]
    listings: tuple[Listing, ...]
    elsewhere: float
    """share of the time that belongs to no line"""


def anatomy(detail: LaunchDetail, read: Read, marks: Marks = MappingProxyType({})) -> Anatomy:
    """Lay a launch out for a page; ``read`` gives the text of its source files, ``marks`` what was found at lines."""
    longest = binding(detail)
    limits = tuple(
        Limit(LIMITS[name], seconds / detail.seconds, duration(seconds), name == longest)
        for name, seconds in sorted(detail.limits.items(), key=lambda item: -item[1])
        if detail.seconds and seconds > WORTH * detail.seconds
    )
    rest = max(0.0, 1.0 - sum(line.share for line in detail.lines))
    return Anatomy(detail, occupancy_text(detail), limits, tuple(_listings(detail.lines, read, marks)), rest)


def _listings(lines: Iterable[SourceLine], read: Read, marks: Marks) -> Iterable[Listing]:
    """The functions that contain the lines, the costliest first."""
    by_file: dict[str, dict[int, list[SourceLine]]] = {}
    for line in lines:
        by_file.setdefault(line.file, {}).setdefault(line.line, []).append(line)
    found: list[tuple[float, Listing]] = []
    for file, numbered in by_file.items():
        text = [line.rstrip("\n") for line in read(file)]
        shown = coloured("\n".join(text))
        for first, last in _functions(text, sorted(numbered)):
            rows = tuple(_row(n, shown, numbered.get(n, []), marks.get((file, n), "")) for n in range(first, last + 1))
            found.append((sum(row.share for row in rows), Listing(f"{Path(file).name}, line {first}", rows)))
    yield from (listing for _, listing in sorted(found, key=lambda item: -item[0]))


def _row(number: int, text: Sequence[Markup], lines: list[SourceLine], found: str) -> Row:
    said = dict.fromkeys(fact for line in lines for fact in _said(line))
    source = text[number - 1] if number <= len(text) else escape(lines[0].text if lines else "")
    return Row(number, source, sum(line.share for line in lines), "; ".join(said), found)


def _said(line: SourceLine) -> list[str]:
    said = facts(line)
    if line.coalesced_seconds is not None:
        said.append(f"{duration(line.coalesced_seconds)} a launch without the waste")
    if line.callers:
        said.append(f"called at line {line.callers[0].rpartition(':')[2]}")
    return said


def _functions(text: Sequence[str], numbers: list[int]) -> list[tuple[int, int]]:
    """First and last line of the innermost functions around the lines; a few lines around each outside of any
    function."""
    try:
        tree = ast.parse("\n".join(text))
    except (SyntaxError, ValueError, RecursionError):
        tree = ast.Module([], [])
    spans = [
        (node.lineno, node.end_lineno or node.lineno) for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)
    ]
    chosen: dict[tuple[int, int], None] = {}
    for number in numbers:
        around = [span for span in spans if span[0] <= number <= span[1]]
        few = (max(1, number - AROUND), min(len(text), number + AROUND) if text else number)
        chosen[min(around, key=lambda span: span[1] - span[0]) if around else few] = None
    return list(chosen)


def time_stack(profile: Profile) -> Markup:
    """One bar of the whole time, from the first command to the last, split by limit."""
    seconds = dict.fromkeys(STACK, 0.0)
    for row in profile.rows:
        if row.detail is None:
            seconds[_OF_BOUND[row.bound or "latency"]] += row.seconds
            continue
        fixed = min(row.seconds, row.detail.limits.get("fixed", 0.0) * row.calls)
        longest = max((name for name in row.detail.limits if name != "fixed"), key=lambda n: row.detail.limits[n])  # type: ignore[union-attr]
        seconds["fixed"] += fixed
        seconds[longest] += row.seconds - fixed
    seconds["host"] = max(0.0, profile.elapsed_seconds - profile.total_seconds)
    total = sum(seconds.values())
    parts = [(name, value) for name, value in seconds.items() if total and value / total >= WORTH]
    names = {**LIMITS, "host": "waiting for the host"}
    bars = "".join(
        f'<i style="width:{100 * value / total:.2f}%;background:{COLOURS[name]}" '
        f'title="{escape(names[name])}: {duration(value)}, {percent(value / total)}"></i>'
        for name, value in parts
    )
    words = [f"{names[name]} {duration(value)}" for name, value in parts]
    return Markup(f'<div class="stack">{bars}</div>') + legend(words, [COLOURS[name] for name, _ in parts])
