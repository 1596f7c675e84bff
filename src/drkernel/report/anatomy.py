"""Where modelled time goes: the hottest lines, the roofline, each kernel's source with shares by line, its limits."""

import ast
import math
import re
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from markupsafe import Markup, escape
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from drkernel.report.render import Axes, coloured, dot, frame, legend, svg
from drkernel.sim.spec import GPUSpec, get_spec
from drkernel.verdict import LaunchDetail, Profile, SourceLine
from drkernel.view import duration, facts, percent, place

SHOWN = 5
"""lines in the terminal"""
WORTH = 0.005
"""least share of the time for which a line gets a row"""
LIMITS = {
    "dram": "device memory", "l2": "L2", "sm_memory": "L1 and its port", "compute": "arithmetic", "atomics": "atomics",
    "chains": "latency", "dispatch": "dispatch", "fixed": "launch",
}  # fmt: skip
"""names of the limits of a launch, for people"""


def binding(detail: LaunchDetail) -> str:
    """The limit that decides a launch's time; "fixed" where starting it takes longest."""
    return max(detail.limits, key=lambda name: detail.limits[name])


def limits_text(detail: LaunchDetail) -> str:
    """The parts of a launch's time, and its occupancy of the device."""
    longest = binding(detail)
    first = "launch overhead" if longest == "fixed" else LIMITS[longest]
    return f"limited by {first}; {occupancy_text(detail)}"


def occupancy_text(detail: LaunchDetail) -> str:
    """Occupancy and what limits it."""
    programs = f"{detail.resident} program{'s' * (detail.resident != 1)} of {detail.num_warps} warps on an SM"
    return f"occupancy {percent(detail.occupancy)} ({programs}, limited by {detail.limited_by})"


def hottest(detail: LaunchDetail) -> RenderableType:
    """The costliest lines of a launch as a table."""
    table = Table(box=None, padding=(0, 1, 0, 0), show_header=False)
    for justify in ("right", "left", "left", "left"):
        table.add_column(justify=justify, no_wrap=justify == "right", overflow="fold")  # type: ignore[arg-type]
    lines = [line for line in detail.lines if line.share >= WORTH][:SHOWN]
    for line in lines:
        table.add_row(
            percent(line.share), Text(place(line), style="cyan"), Text(line.text),
            Text(", ".join(facts(line)), style="dim"),
        )  # fmt: skip
    rest = 1.0 - sum(line.share for line in lines)
    if rest >= WORTH:
        table.add_row(percent(rest), Text("other lines, starting and ending programs", style="dim"), "", "")
    summary = f"{duration(detail.seconds)} a launch, {limits_text(detail)}"
    return Group(Text(summary, style="dim"), table)


# ---- The roofline plot


OWNERS = {"custom": ("own kernels", "var(--custom)"), "library": ("PyTorch", "var(--library)")}
HOLLOW = "none; box-shadow: inset 0 0 0 2px"
"""a ring in the legend, as the reference's points are"""
MIN_BYTES = 1024.0
"""Traffic, in bytes, below which the ratio says nothing."""


def roofline_plot(profile: Profile, reference: Profile | None = None) -> Markup:
    """A point for each row that computes and moves something, those of ``reference`` hollow; empty where the card is
    unknown or there are none."""
    try:
        spec = get_spec(profile.device.removeprefix("sim:"))
    except ValueError:
        return Markup()
    points = [
        (row.flops / row.bytes, row.flops / row.seconds, row, kind)
        for of, kind in ((reference, "hollow"), (profile, ""))
        for row in (() if of is None else of.rows)
        if row.owner in OWNERS and row.flops and row.seconds and row.bytes and row.bytes >= MIN_BYTES
    ]
    if not any(not kind for *_, kind in points):
        return Markup()
    roofs = _roofs(spec, {row.detail.unit for *_, row, _ in points if row.detail is not None})
    top = max([*roofs.values(), *(rate for _, rate, *_ in points)])
    across = [0.1, 1.5 * top / spec.hbm_bandwidth, *(intensity for intensity, *_ in points)]
    x = _decades(min(across), max(across))
    low = min([x[0] * spec.hbm_bandwidth, *(rate for _, rate, *_ in points)])
    axes = Axes(
        x, _decades(low / 1e12, top / 1e12), "operations a byte of device memory", "TFLOP/s", log_y=True, log_x=True
    )
    parts = [frame(axes)]
    for name, peak in roofs.items():
        parts.append(_roof(axes, spec, name, peak))
    for intensity, rate, row, kind in points:
        text = f"{'reference, ' * bool(kind)}{row.name}: {duration(row.seconds)}, operations a byte and TFLOP/s"
        radius = 3.5 + 6.0 * math.sqrt(min(1.0, row.share))
        parts.append(dot(axes, intensity, rate / 1e12, OWNERS[row.owner][1], radius, text, kind))
    owners = [OWNERS[owner] for owner in OWNERS if any(row.owner == owner for *_, row, _ in points)]
    names = [name for name, _ in owners] + ["reference"] * any(kind for *_, kind in points)
    return svg(parts, "roofline") + legend(names, [*(colour for _, colour in owners), HOLLOW])


def _decades(low: float, high: float) -> tuple[float, float]:
    """Powers of ten around a range."""
    return 10.0 ** math.floor(math.log10(low)), 10.0 ** math.ceil(math.log10(high))


def _roofs(spec: GPUSpec, units: set[str]) -> dict[str, float]:
    """Peaks of fp32, of 16-bit products and of the units that own kernels use; equal ones under one name."""
    names: dict[float, list[str]] = {}
    for unit in sorted({"fp32", "tensor_fp16", "tensor_bf16", *units}):
        peak = spec.peak.get("fp32" if unit == "fp32_dot" else unit)
        words = unit.removeprefix("tensor_").removesuffix("_dot") + " tensor" * unit.startswith("tensor_")
        if peak is not None and words not in names.get(peak, []):
            names.setdefault(peak, []).append(words)
    return {", ".join(words): peak for peak, words in names.items()}


def _roof(axes: Axes, spec: GPUSpec, name: str, peak: float) -> str:
    ridge = peak / spec.hbm_bandwidth
    start = max(axes.x[0], axes.y[0] * 1e12 / spec.hbm_bandwidth)
    left = (axes.px(start), axes.py(start * spec.hbm_bandwidth / 1e12))
    knee = (axes.px(ridge), axes.py(peak / 1e12))
    right = (axes.px(axes.x[1]), knee[1])
    line = " ".join(f"{a:.1f},{b:.1f}" for a, b in (left, knee, right))
    return (
        f'<polyline points="{line}" fill="none" class="roof"/>'
        f'<text x="{right[0] - 4:.1f}" y="{right[1] - 5:.1f}" text-anchor="end" class="tick">'
        f"{escape(name)} {peak / 1e12:.3g} TFLOP/s</text>"
    )


# ---- Where modelled time goes, for pages


AROUND = 3
"""lines shown on either side when the enclosing function is unknown"""
STACK = ("dram", "l2", "sm_memory", "compute", "atomics", "chains", "dispatch", "fixed", "host")
COLOURS = {name: f"var(--of-{name})" for name in STACK} | {"host": "var(--line)"}
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
    colour: str


@dataclass(frozen=True)
class LoweredLine:
    """A source line beside the TTIR that it became."""

    number: int
    text: Markup
    ir: str


@dataclass(frozen=True)
class Anatomy:
    """A kernel's slowest launch."""

    detail: LaunchDetail
    occupancy: str
    limits: tuple[Limit, ...]
    listings: tuple[Listing, ...]
    elsewhere: float
    """share of the time that belongs to no line"""
    lowered: tuple[LoweredLine, ...]


def anatomy(detail: LaunchDetail, read: Read, marks: Marks = MappingProxyType({}), ttir: str | None = None) -> Anatomy:
    """Lay a launch out for a page; ``read`` gives the text of its source files, ``marks`` what was found at lines."""
    longest = binding(detail)
    limits = tuple(
        Limit(LIMITS[name], seconds / detail.seconds, duration(seconds), name == longest, COLOURS[name])
        for name, seconds in sorted(detail.limits.items(), key=lambda item: -item[1])
        if detail.seconds and seconds > WORTH * detail.seconds
    )
    rest = max(0.0, 1.0 - sum(line.share for line in detail.lines))
    listings = tuple(_listings(detail.lines, read, marks))
    return Anatomy(detail, occupancy_text(detail), limits, listings, rest, tuple(_lowered(ttir or "", read)))


PLACE = re.compile(r'^#(\w+) = loc\((?:"([^"]+)":(\d+):\d+\)|.*#(\w+)\)+)')
"""a place of TTIR's table of places: a line of a file, or made of another place (of several, the last: the caller's)"""
AT = re.compile(r" loc\(.*?#(\w+)\)+$")
PLACES = re.compile(r" loc\((?:[^()]|\([^()]*\))*\)")


def _lowered(ttir: str, read: Read) -> Iterable[LoweredLine]:
    """Runs of TTIR lines that come from one source line, in the order of the TTIR."""
    places: dict[str, tuple[str, int] | str] = {}
    for line in ttir.splitlines():
        if known := PLACE.match(line):
            places[known[1]] = (known[2], int(known[3])) if known[2] else known[4]
    found: list[tuple[tuple[str, int], list[str]]] = []
    for line in filter(lambda line: line.strip() and not line.startswith("#"), ttir.splitlines()):
        at = AT.search(line)
        where: tuple[str, int] | str | None = at[1] if at else None
        for _ in places:
            where = places.get(where) if isinstance(where, str) else where
        if isinstance(where, tuple) and (not found or found[-1][0] != where):
            found.append((where, []))
        if found:
            found[-1][1].append(PLACES.sub("", line))
    files = dict.fromkeys(file for (file, _), _ in found)
    shown = {file: coloured("\n".join(line.rstrip("\n") for line in read(file))) for file in files}
    for (file, number), lines in found:
        source = shown[file][number - 1] if number <= len(shown[file]) else Markup()
        yield LoweredLine(number, source, textwrap.dedent("\n".join(lines)))


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
