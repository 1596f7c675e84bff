"""Sources on a page: coloured by the language's grammar, and two of them side by side."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from dataclasses import dataclass

from markupsafe import Markup
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import PythonLexer

NEAR = 3
"""Equal lines that are shown around a change."""


def coloured(source: str) -> list[Markup]:
    """Return the lines of a Python source as HTML: tokens are ``span``s of Pygments' short names after ``y-``."""
    plain = _lines(source)
    lexer = PythonLexer(stripnl=False, ensurenl=False)
    lines = highlight("\n".join(plain), lexer, HtmlFormatter(nowrap=True, classprefix="y-")).split("\n")
    return [Markup(line) for line in lines[: len(plain)]]


def _lines(source: str) -> list[str]:
    """Lines as Python's own parser counts them: a form feed ends none."""
    lines = re.split(r"\r\n|\r|\n", source)
    return lines if lines[-1] else lines[:-1]


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
