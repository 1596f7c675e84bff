"""Pages from the templates beside this file, with coloured sources and plots as inline SVG.

A page's own policy admits that script by its hash, so that no text of a candidate could run even if it were not
escaped.
"""

import base64
import difflib
import hashlib
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any, NamedTuple

from markupsafe import Markup, escape

from drkernel.verdict import Verdict, printable
from drkernel.view import VerdictView, duration, number, percent, size, times

if TYPE_CHECKING:
    from jinja2 import Environment


class StatusLook(NamedTuple):
    """How a verdict's status is shown."""

    word: str
    """in a cell without a speedup"""
    colour: str
    """in the terminal"""
    fill: str
    """on pages"""
    meaning: str
    """for readers who have never seen one"""


STATUSES = {
    "correct": StatusLook("right", "green", "var(--good)", "right on every call, by its own kernels"),
    "incorrect": StatusLook("wrong", "red", "var(--wrong)", "ran, but an output was wrong"),
    "hack": StatusLook(
        "hack", "magenta", "var(--hack)", "looked right but did not do the work: condemned by evidence"
    ),
    "compile_error": StatusLook("compile", "red", "var(--bad)", "did not compile, or held no code"),
    "runtime_error": StatusLook("fails", "red", "var(--raised)", "raised an exception"),
    "timeout": StatusLook("timeout", "red", "var(--late)", "did not end in time"),
    "out_of_memory": StatusLook("memory", "red", "var(--full)", "asked for more memory than the device has"),
    "unsupported": StatusLook(
        "unsupported", "blue", "var(--other)",
        "in a language that the device cannot run: neither right nor wrong, outside fast_p",
    ),
    "infra_error": StatusLook("infra", "yellow", "var(--warn)", "the grader failed; counts for nothing"),
    "invalid_request": StatusLook("invalid", "yellow", "var(--warn)", "the task cannot be graded; counts for nothing"),
}  # fmt: skip
"""in the order of the plots, from the bottom up"""
COLOURS = {"custom": "green", "library": "yellow", "copy": "red"}
"""of kernels and operators in the terminal, by owner"""
NEAR = 3
"""Equal lines that are shown around a change."""


def coloured(source: str) -> list[Markup]:
    """Return the lines of a Python source as HTML: tokens are ``span``s of Pygments' short names after ``y-``."""
    from pygments import highlight  # neither this nor jinja2 is needed in a terminal
    from pygments.formatters import HtmlFormatter
    from pygments.lexers import PythonLexer

    plain = _lines(source)
    lexer = PythonLexer(stripnl=False, ensurenl=False)
    lines = highlight("\n".join(plain), lexer, HtmlFormatter(nowrap=True, classprefix="y-")).split("\n")
    return [Markup(line) for line in lines[: len(plain)]]


def _lines(source: str) -> list[str]:
    """Lines as Python's own parser counts them: a form feed ends none."""
    lines = re.split(r"\r\n|\r|\n", source)
    return lines if lines[-1] else lines[:-1]


def excerpt(source: str | None, line: int | None, around: int = 2) -> list[tuple[int, Markup, bool]]:
    """(number, text, whether it is the line) of a line and its neighbours; empty where the line is not known."""
    shown = coloured(source) if source and line else []
    if not line or not 1 <= line <= len(shown):
        return []
    first, last = max(1, line - around), min(len(shown), line + around)
    while last > line and not shown[last - 1].strip():
        last -= 1
    return [(n, text, n == line) for n, text in enumerate(shown[first - 1 : last], first)]


Shown = tuple[str, str, str, dict[str, Any] | None, list[tuple[int, Markup, bool]]]
"""a finding: severity, kind, message, evidence, the lines it is about"""


def shown_findings(verdict: Verdict, source: str | None) -> list[Shown]:
    """A verdict's findings for a page, each with the line of the candidate's source that it names."""

    def lines(line: object) -> list[tuple[int, Markup, bool]]:
        return excerpt(source, line if isinstance(line, int) else None)

    return [
        (one.severity, one.kind, text, one.evidence or None, lines(one.evidence.get("line")))
        for one, text in VerdictView.of(verdict).findings
    ]


@dataclass(frozen=True)
class Beside:
    """A row of two sources side by side; None where a side has no line."""

    left: int | None
    """Line number on the left, from 1."""
    right: int | None
    old: Markup | None
    new: Markup | None
    kind: str
    """``equal``, ``changed``, or ``gap`` for equal lines that are left out."""


def side_by_side(before: str, after: str) -> list[Beside]:
    """Return the changes from one source to another with a few equal lines around them; empty for equal sources."""
    old, new = _lines(before), _lines(after)
    shown_old, shown_new = coloured(before), coloured(after)
    rows: list[Beside] = []
    for group in difflib.SequenceMatcher(None, old, new, autojunk=False).get_grouped_opcodes(NEAR):
        if rows or group[0][1] > 0:
            rows.append(Beside(None, None, None, None, "gap"))
        for tag, i, i_end, j, j_end in group:
            for left, right in _pairs(range(i, i_end), range(j, j_end)):
                rows.append(
                    Beside(
                        None if left is None else left + 1,
                        None if right is None else right + 1,
                        None if left is None else shown_old[left],
                        None if right is None else shown_new[right],
                        "equal" if tag == "equal" else "changed",
                    )
                )
    return rows


def _pairs(left: range, right: range) -> Iterator[tuple[int | None, int | None]]:
    for at in range(max(len(left), len(right))):
        yield left[at] if at < len(left) else None, right[at] if at < len(right) else None


# ---- Small plots as inline SVG: lines with bands, stacked areas and scatters
#
# They use the page's CSS variables for colour, so that one picture serves light and dark. Every point has a ``<title>``
# with its values, for hover and screen readers. No script, no network, no plotting library. A plot without data is
# empty markup, which pages leave out.


WIDTH, HEIGHT = 520, 264
LEFT, RIGHT, TOP, BOTTOM = 56, 20, 30, 46
FEW = 16
"""Most points of a curve whose points are marked; those of longer ones show under the pointer."""
PALETTE = tuple(f"var(--c{k})" for k in range(1, 8))


@dataclass(frozen=True)
class Curve:
    """One curve. ``low`` and ``high`` draw a band around it."""

    name: str
    x: Sequence[float]
    y: Sequence[float | None]
    low: Sequence[float | None] | None = None
    high: Sequence[float | None] | None = None


@dataclass(frozen=True)
class Axes:
    """The frame of a plot: data ranges and labels."""

    x: tuple[float, float]
    y: tuple[float, float]
    x_label: str = ""
    y_label: str = ""
    log_y: bool = False
    log_x: bool = False
    whole_x: bool = False
    """x counts turns or steps: there are none between"""

    def px(self, value: float) -> float:
        """Horizontal position of a data value."""
        low, high = self.x
        if self.log_x:
            low, high, value = math.log10(low), math.log10(high), math.log10(max(value, 1e-300))
        return LEFT + (value - low) / ((high - low) or 1) * (WIDTH - LEFT - RIGHT)

    def py(self, value: float) -> float:
        """Vertical position of a data value."""
        low, high = self.y
        if self.log_y:
            low, high, value = math.log10(low), math.log10(high), math.log10(max(value, 1e-300))
        return HEIGHT - BOTTOM - (value - low) / ((high - low) or 1) * (HEIGHT - TOP - BOTTOM)


def line_plot(
    lines: Sequence[Curve], *, x_label: str = "step", y_label: str = "", y_range: tuple[float, float] | None = None,
    guide_y: float | None = None,
) -> Markup:  # fmt: skip
    """Curves over a common x. Gaps (``None``) break a curve; ``guide_y`` draws a dashed line, such as a baseline's."""
    values = [v for line in lines for s in (line.y, line.low or (), line.high or ()) for v in s if v is not None]
    xs = [v for line in lines for v in line.x]
    if not values or not xs:
        return Markup()
    axes = Axes(
        (min(xs), max(xs)),
        y_range or nice_range(min(values), max(values)),
        x_label,
        y_label,
        whole_x=all(x == int(x) for x in xs),
    )
    parts = [frame(axes), guide(axes, guide_y)]
    parts += [_band(axes, line, PALETTE[k % len(PALETTE)]) for k, line in enumerate(lines) if line.low is not None]
    points = []
    for k, line in enumerate(lines):  # over all bands, so that none hides a curve
        color = PALETTE[k % len(PALETTE)]
        for run in _runs(line.x, line.y):
            path = " ".join(f"{axes.px(x):.1f},{axes.py(y):.1f}" for x, y in run)
            if len(run) > 1:
                parts.append(f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="2"/>')
            marked = "" if len(run) == 1 or len(line.x) <= FEW else "hidden"
            points += [dot(axes, x, y, color, 3.5, line.name, marked) for x, y in run]
    return svg(parts + points, ", ".join(line.name for line in lines)) + legend([line.name for line in lines])


def guide(axes: Axes, y: float | None) -> str:
    """A dashed line across, where it is inside the frame."""
    if y is None or not axes.y[0] <= y <= axes.y[1]:
        return ""
    at = axes.py(y)
    return f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{at:.1f}" y2="{at:.1f}" class="guide"/>'


def stacked_plot(
    x: Sequence[float],
    series: dict[str, Sequence[float]],
    *,
    x_label: str = "step",
    y_label: str = "",
    colors: Sequence[str] = PALETTE,
) -> Markup:
    """Shares that add up, as stacked areas; ``colors`` by the order of ``series``."""
    if not x or not series:
        return Markup()
    totals = [sum(values[k] for values in series.values()) for k in range(len(x))]
    axes = Axes((min(x), max(x)), (0.0, max([*totals, 1e-9])), x_label, y_label, whole_x=all(v == int(v) for v in x))
    parts, base = [frame(axes)], [0.0] * len(x)
    for k, values in enumerate(series.values()):
        top = [b + v for b, v in zip(base, values, strict=True)]
        upper = [f"{axes.px(a):.1f},{axes.py(t):.1f}" for a, t in zip(x, top, strict=True)]
        lower = [f"{axes.px(a):.1f},{axes.py(b):.1f}" for a, b in zip(x, base, strict=True)][::-1]
        parts.append(f'<polygon points="{" ".join(upper + lower)}" fill="{colors[k % len(colors)]}" opacity="0.8"/>')
        base = top
    width = (WIDTH - LEFT - RIGHT) / max(1, len(x) - 1)
    for k, value in enumerate(x):
        words = ", ".join(f"{name} {percent(values[k])}" for name, values in series.items() if values[k])
        left = min(max(axes.px(value) - width / 2, LEFT), WIDTH - RIGHT)
        parts.append(
            f'<rect x="{left:.1f}" y="{TOP}" width="{width:.1f}" height="{HEIGHT - TOP - BOTTOM}" class="strip">'
            f"<title>{escape(x_label)} {value:g}: {escape(words)}</title></rect>"
        )
    return svg(parts, "shares over time") + legend(list(series), colors)


def status_plot(x: Sequence[float], counts: Sequence[Mapping[str, int]], *, x_label: str = "step") -> Markup:
    """The shares of the verdicts' statuses, from how many there are of each at every x."""
    names = [name for name in STATUSES if any(count.get(name) for count in counts)]
    shares: dict[str, Sequence[float]] = {
        _words(name): [count.get(name, 0) / max(1, sum(count.values())) for count in counts] for name in names
    }
    colors = [STATUSES[name].fill for name in names]
    return stacked_plot(x, shares, x_label=x_label, y_label="share of answers", colors=colors)


def scatter_plot(
    groups: dict[str, Sequence[tuple[float, float]]], *, x_label: str, y_label: str,
    x_range: tuple[float, float] | None = None, guide_y: float | None = None,
) -> Markup:  # fmt: skip
    """Points by group; ``guide_y`` draws a dashed line."""
    points = [p for group in groups.values() for p in group]
    if not points:
        return Markup()
    ys = [y for _, y in points] + ([guide_y] if guide_y is not None else [])
    axes = Axes(
        x_range or nice_range(min(x for x, _ in points), max(x for x, _ in points)),
        nice_range(min(0.0, *ys), max(ys)),
        x_label,
        y_label,
    )
    parts = [frame(axes), guide(axes, guide_y)]
    for k, (name, group) in enumerate(groups.items()):
        parts += [dot(axes, x, y, PALETTE[k % len(PALETTE)], 3, name) for x, y in group]
    return svg(parts, f"{y_label} against {x_label}") + legend(list(groups))


def legend(names: Sequence[str], colors: Sequence[str] = PALETTE) -> Markup:
    """Names beside their colours."""
    items = "".join(
        f'<span><i style="background:{colors[k % len(colors)]}"></i>{escape(name)}</span>'
        for k, name in enumerate(names)
    )
    return Markup(f'<div class="legend">{items}</div>')


def frame(axes: Axes) -> str:
    """Grid, ticks and labels."""
    parts = []
    for value in powers(*axes.y) if axes.log_y else ticks(*axes.y):
        y = axes.py(value)
        parts.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" class="grid"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end" class="tick">{short(value)}</text>')
    for value in powers(*axes.x) if axes.log_x else ticks(*axes.x):
        if axes.whole_x and value != int(value):
            continue
        x = axes.px(value)
        parts.append(
            f'<text x="{x:.1f}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle" class="tick">{short(value)}</text>'
        )
    middle = (LEFT + WIDTH - RIGHT) / 2
    parts.append(
        f'<text x="{middle}" y="{HEIGHT - 4}" text-anchor="middle" class="label">{escape(axes.x_label)}</text>'
    )
    parts.append(f'<text x="0" y="12" class="label">{escape(axes.y_label)}</text>')
    return "".join(parts)


def ticks(low: float, high: float, count: int = 5) -> list[float]:
    """Round values that cover the range, ``count`` or so."""
    if not high > low:
        return [low]
    raw = (high - low) / count
    magnitude = 10 ** math.floor(math.log10(raw))
    step = min((m for m in (1, 2, 2.5, 5, 10) if m * magnitude >= raw), default=10) * magnitude
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [round(k * step, 12) for k in range(first, last + 1)]


def short(value: float) -> str:
    """A tick's number in little space."""
    return f"{value / 1000:g}k" if value >= 10_000 and value % 1000 == 0 else f"{value:g}".replace("e-0", "e-")


def powers(low: float, high: float) -> list[float]:
    """The powers of ten in a range, every other one where they are many."""
    first, last = math.ceil(math.log10(low) - 1e-9), math.floor(math.log10(high) + 1e-9)
    return [float(f"1e{k}") for k in range(first, last + 1, 1 if last - first < 8 else 2)]


def nice_range(low: float, high: float) -> tuple[float, float]:
    """The range with a little room, and some extent where there is none."""
    if not high > low:
        return (0.0, 1.0) if low == 0 else (low - 0.5, high + 0.5)
    room = 0.05 * (high - low)
    return (0.0 if 0 <= low <= room * 4 else low - room, high + room)


def _runs(x: Sequence[float], y: Sequence[float | None]) -> list[list[tuple[float, float]]]:
    runs: list[list[tuple[float, float]]] = [[]]
    for a, b in zip(x, y, strict=True):
        if b is None or not math.isfinite(b):
            runs.append([])
        else:
            runs[-1].append((a, b))
    return [run for run in runs if run]


def _band(axes: Axes, line: Curve, color: str) -> str:
    assert line.low is not None and line.high is not None
    kept = [
        (a, lo, hi) for a, lo, hi in zip(line.x, line.low, line.high, strict=True) if lo is not None and hi is not None
    ]
    upper = [f"{axes.px(a):.1f},{axes.py(hi):.1f}" for a, _, hi in kept]
    lower = [f"{axes.px(a):.1f},{axes.py(lo):.1f}" for a, lo, _ in kept][::-1]
    return f'<polygon points="{" ".join(upper + lower)}" fill="{color}" opacity="0.12"/>'


def dot(axes: Axes, x: float, y: float, color: str, radius: float, title: str, kind: str = "") -> str:
    """A point with its title and values to hover over; of ``kind`` ``hidden`` until then, or ``hollow``."""
    at = f'cx="{axes.px(x):.1f}" cy="{axes.py(y):.1f}" r="{radius:.1f}"'
    return (
        f'<circle {at} style="--dot:{color}" class="dot {kind}">'
        f"<title>{escape(title)}: {x:.4g}, {y:.4g}</title></circle>"
    )


def svg(parts: Sequence[str], title: str) -> Markup:
    """The picture; its parts are SVG whose texts are escaped already."""
    return Markup(
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(title)}">' + "".join(parts) + "</svg>"
    )


# ---- Bars on a scale of time


Span = tuple[float, float, str, str, str]
"""start and length in seconds, name, text to hover over, owner"""
TRACK_WIDTH, ROW, GAP, LETTER = 1000.0, 22, 34, 6.6
"""of the picture, of a bar's height, between bars of two tracks, of a letter"""


def tracks(rows: dict[str, list[Span]], start: float, end: float, caption: str) -> Markup:
    """Named tracks of spans, one below the other, on one scale from ``start`` to ``end``."""
    scale, parts = TRACK_WIDTH / ((end - start) or 1.0), []
    for top, (title, spans) in zip(range(0, len(rows) * (ROW + GAP), ROW + GAP), rows.items(), strict=True):
        parts.append(f'<text x="0" y="{top + 13}" class="label">{escape(title)}</text>')
        for begin, seconds, name, hover, owner in spans:
            x, width = (begin - start) * scale, max(0.8, seconds * scale)
            parts.append(
                f'<rect x="{x:.2f}" y="{top + 19}" width="{max(0.6, width - 1):.2f}" height="{ROW}" rx="2" '
                f'fill="var(--{owner})"><title>{escape(hover)}</title></rect>'
            )
            if width > LETTER * len(name) + 8:
                parts.append(f'<text x="{x + 5:.2f}" y="{top + 34}" class="span">{escape(name)}</text>')
    return Markup(
        f'<div class="scroll"><svg viewBox="0 0 {TRACK_WIDTH:.0f} {len(rows) * (ROW + GAP) - 8}" class="timeline" '
        f'role="img" aria-label="bars on a scale of time">{"".join(parts)}</svg></div>'
        f'<p class="dim">{escape(caption)}</p>'
    )


# ---- Pages from the templates beside this file


def render(template: str, **values: Any) -> str:
    """The page of ``templates/<template>.html.j2``. A name that the template uses and is not given is an error.

    Control characters, which HTML does not allow, and orders to write from right to left, by which a source reads as
    another one, are written out: an untrained policy writes any bytes.
    """
    return printable(_environment().get_template(f"{template}.html.j2").render(**values).replace("\r\n", "\n"))


@cache
def _environment() -> "Environment":
    from jinja2 import Environment, PackageLoader, StrictUndefined

    made = Environment(
        loader=PackageLoader("drkernel.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {"duration": duration, "number": number, "percent": percent, "times": times, "words": _words,
                     "coloured": coloured, "size": size}  # fmt: skip
    script = (resources.files("drkernel.report") / "templates" / "page.js").read_text(encoding="utf-8")
    style = (resources.files("drkernel.serve") / "static" / "style.css").read_text(encoding="utf-8")
    made.globals["shown_findings"] = shown_findings
    made.globals["style"] = Markup(style)  # our own files
    made.globals["script"] = Markup(script)
    made.globals["script_hash"] = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return made


def _words(name: str) -> str:
    """``runtime_error`` in a form for people: 'runtime error'."""
    return name.replace("_", " ")
