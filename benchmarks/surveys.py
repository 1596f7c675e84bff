"""What benchmarks share: options, kept rows, work in a forked process, agreement of two series, long tables."""

import argparse
import csv
import json
import math
import os
import re
import resource
import signal
import subprocess
import traceback
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray


def parser_of(doc: str | None) -> argparse.ArgumentParser:
    """A parser whose help is a module's text as it stands."""
    return argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)


def clone_with(marker: str, *, history: bool = False) -> Callable[[str], Path]:
    """A parser's type: a folder that holds ``marker``, with ``history`` a git clone whose last commit does. Another is
    refused by name."""

    def folder(text: str) -> Path:
        asked = ["git", "-C", text, "cat-file", "-e", f"HEAD:{marker}"]
        if subprocess.run(asked, capture_output=True).returncode if history else not (Path(text) / marker).exists():
            raise argparse.ArgumentTypeError(f"{text} is no {'git ' * history}clone with {marker}")
        return Path(text)

    return folder


def asks(parser: argparse.ArgumentParser, known: Iterable[str]) -> None:
    """Give a parser ``questions``, of which any may be named; without a name none, which stands for all. One that is
    not ``known`` is refused, as ``choices`` would if it let none be named."""
    names = ", ".join(known)

    def question(text: str) -> str:
        if text not in names.split(", "):
            raise argparse.ArgumentTypeError(f"no question {text!r}; there are {names}")
        return text

    parser.add_argument("questions", nargs="*", type=question, metavar="QUESTION", help=f"default: all of {names}")


# ---- rows that a survey keeps, a line of JSON each, so that an interrupted one goes on


def kept_rows(path: Path | None) -> list[dict[str, Any]]:
    """The rows that earlier runs have kept."""
    lines = path.read_text(encoding="utf-8").splitlines() if path is not None and path.is_file() else []
    return [json.loads(line) for line in lines]


def keep_row(path: Path | None, row: dict[str, Any]) -> None:
    """Add a row."""
    if path is not None:
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")


def forked(work: Callable[[], dict[str, Any]], limit: float, memory_bytes: int) -> dict[str, Any]:
    """What ``work`` returns in a process of its own, which may take so many seconds and bytes; or its ``error``."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
        try:
            answer = work()
        except BaseException as error:  # other people's code may fail in any way
            place = traceback.extract_tb(error.__traceback__)[-1]
            said = f"{type(error).__name__}: {str(error)[:300]} ({Path(place.filename).name}:{place.lineno})"
            answer = {"error": said}
        os.write(writer, json.dumps(answer).encode())
        os._exit(0)
    os.close(writer)
    signal.signal(signal.SIGALRM, lambda *_: os.kill(child, signal.SIGKILL))
    signal.setitimer(signal.ITIMER_REAL, limit)
    with os.fdopen(reader, "rb") as file:
        text = file.read()
    signal.setitimer(signal.ITIMER_REAL, 0)
    os.waitpid(child, 0)
    return json.loads(text) if text else {"error": "ended by a signal, or over the limit"}


# ---- agreement of two series


def ranks(values: Sequence[float]) -> NDArray[np.float64]:
    """Ranks with ties averaged."""
    _, place, count = np.unique(values, return_inverse=True, return_counts=True)
    return (count.cumsum() - (count + 1) / 2)[place]


def spearman(a: Sequence[float], b: Sequence[float]) -> float:
    """Rank correlation; NaN of fewer than three pairs, or where one side has a single value."""
    if len(a) < 3 or len(set(a)) == 1 or len(set(b)) == 1:
        return math.nan
    return float(np.corrcoef(ranks(a), ranks(b))[0, 1])


def quantile(values: Iterable[float], share: float) -> float:
    """With interpolation between neighbours."""
    return float(np.quantile(list(values), share))


AGREEMENT = ["rows", "Spearman", "median error (log)", "p90", "bias"]


def agreement(measured: Sequence[float], modelled: Sequence[float]) -> list[str]:
    """The cells below :data:`AGREEMENT`: errors are log(modelled / measured), sizes of them but for the bias."""
    errors = [math.log(ours / theirs) for ours, theirs in zip(modelled, measured, strict=True)]
    sizes = [abs(error) for error in errors]
    rank, bias = spearman(measured, modelled), math.exp(quantile(errors, 0.5))
    near, far = quantile(sizes, 0.5), quantile(sizes, 0.9)
    return [f"{len(errors)}", f"{rank:.3f}", f"{near:.3f}", f"{far:.2f}", f"×{bias:.2f}"]


# ---- tables


def markdown(rows: Sequence[Sequence[str]], numbers: int = 0) -> list[str]:
    """The lines of a table, the head first; the last ``numbers`` columns are to the right."""
    width = len(rows[0])
    rule = ["---"] * (width - numbers) + ["---:"] * numbers
    return ["| " + " | ".join(row) + " |" for row in (rows[0], rule, *rows[1:])]


READING = "## Reading"
"""heading of the part of a page that people write; it comes last"""


def write_page(path: Path, text: str) -> None:
    """Write a page anew, but for what people wrote at its end."""
    old = path.read_text(encoding="utf-8") if path.exists() else ""
    path.write_text(text + ("\n" + old[old.index(READING) :] if READING in old else ""), encoding="utf-8")


def with_figures(page: str, found: dict[str, str]) -> str:
    """A page with other figures, by patterns of what it said; raises ``ValueError`` where it lacks the place of one."""
    for pattern, text in found.items():
        page, places = re.subn(pattern, text.replace("\\", "\\\\"), page)
        if places != 1:
            raise ValueError(f"the page has {places} places like {pattern!r}, not one")
    return page


def write_table(path: Path, rows: Sequence[Sequence[str]]) -> str:
    """Write rows, the head first, as a CSV file, which GitHub and the built site show with a search field; return the
    line by which a page in the same folder shows them."""
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(rows)
    return f"[{path.name}, {len(rows) - 1} rows]({path.name})"
