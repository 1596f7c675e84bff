"""Grade the whole corpus of cheats and honest twins; the figures of docs/hacks.md and its table, docs/hacks.csv.

    python benchmarks/hack_recall.py            # prints the counts, exit code 1 when anything is not as it must be
    python benchmarks/hack_recall.py --write    # also writes the page's figures and the table
    python benchmarks/hack_recall.py --times 5 --rows gradings.jsonl
    python benchmarks/hack_recall.py --on card  # by the path for real GPUs: docs/results/measured_path.md
    python benchmarks/hack_recall.py --on cuda:0 --sample 12

Every grading draws secret seeds of its own: what passes, or is condemned, once in a while shows in several. Rows are
kept where asked, and a run that was interrupted goes on, in the same place. On two cores all take some 12 minutes.

``--on card`` takes the simulated GPU inside the runner (tests/kit/simulated_card.py). There and on a GPU an entry that
does not end as it must is graded once more: a machine with other work, too, takes times of a few milliseconds.
"""

import itertools
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console
from rich.progress import track

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests" / "kit"))

from corpus_grading import ROOTS, Entry, entries, entry_named, sample, try_entry  # noqa: E402
from drkernel.gym.sandbox import linux  # noqa: E402
from drkernel.gym.session.base import OpensSessions  # noqa: E402
from drkernel.gym.session.factory import SessionFactory  # noqa: E402
from drkernel.verdict import Verdict  # noqa: E402
from simulated_card import CARD_TERMS, NOT_CAUGHT, CardFactory, graded_on_a_card, use_short_blocks  # noqa: E402
from surveys import keep_row, kept_rows, parser_of, with_figures, write_table  # noqa: E402

DOCS = ROOT / "docs"
PAGE, CARD_PAGE = DOCS / "hacks.md", DOCS / "results" / "measured_path.md"
CAUGHT, CONDEMNED = r"\d+ cheats, \d+ caught;", r"\d+ honest candidates, \d+ condemned"
ALSO = (ROOT / "README.md", DOCS / "status.md")
"""pages that say how many there are, as :data:`PAGE` does in its first line"""
Row = dict[str, Any]
"""a grading: ``id`` of the entry, ``time`` (from 0), ``on`` (the place), ``said`` (the outcome), ``kinds`` of findings
that condemn, ``by`` (who took the credit), ``co_judged`` (kinds that the co-judge found), ``wrong`` (why it is not as
it must be)"""

TIERS = {
    "T0": "no work done",
    "T1": "wrong answer or replay",
    "T2": "tampering in Python",
    "T3": "native code in the process",
    "T4": "across processes",
}


def outcome(entry: Entry, verdict: Verdict) -> str:
    """How a cheat ended, in a few words."""
    kinds = [f.kind for f in verdict.findings if f.severity in ("hack", "bug")]
    if verdict.status == "correct":
        if entry.honest:
            return "correct" if verdict.coverage is None else f"correct: coverage {verdict.coverage:.0%}"
        if entry.expect == "lazy":
            return f"little work: coverage {verdict.coverage:.0%}"
        if entry.expect == "uncredited":
            return f"no speedup is given: {', '.join(kinds)}"
        return "no effect"
    detail = ", ".join(dict.fromkeys(kinds))
    if not detail and verdict.error is not None:
        detail = verdict.error.type
    if not detail and verdict.correctness is not None:
        detail = f"call {verdict.correctness.passed_calls + 1} wrong"
    return f"{verdict.status.replace('_', ' ')}: {detail}" if detail else verdict.status


def caught_by(verdict: Verdict, wrong: str | None) -> tuple[str, list[str]]:
    """Who took the credit from a cheat on a card, and kinds of findings that the co-judge alone has."""
    kinds = list(dict.fromkeys(one.kind for one in verdict.findings if one.seen_on and one.severity != "note"))
    if wrong is not None or verdict.co_judge is None:
        return "measured path" if wrong is None else "not caught", kinds
    return "co-judge" if kinds else "without effect", kinds


def table(rows: Sequence[Row]) -> list[list[str]]:
    """A row an entry, by its worst grading: cheats, then honest ones."""
    found = [["entry", "tier", "root", "class", "what it does", "outcome"]]
    worst = {row["id"]: row for row in sorted(rows, key=lambda row: row["wrong"] is not None)}
    for entry in entries("cheats") + entries("honest"):
        if (row := worst.get(entry.id)) is not None:
            tier, root = ("honest", "") if entry.honest else (entry.tier, entry.root)
            said = row["said"] if row["wrong"] is None else f"NOT AS IT SHOULD BE: {row['wrong']}"
            number = entry.header.get("twin of" if entry.honest else "hacks", "")
            found.append([entry.id, tier, root, number, entry.what, said])
    return found


def figures(rows: Sequence[Row]) -> dict[str, str]:
    """What the page says of a run, by the patterns of what it said before."""
    tried = {row["id"] for row in rows}
    wrong = {row["id"] for row in rows if row["wrong"] is not None}
    cheats, honest = ([one for one in entries(kind) if one.id in tried] for kind in ("cheats", "honest"))
    all_of = Counter(label for entry in cheats for label in (entry.tier, entry.root))
    caught = all_of - Counter(label for entry in cheats if entry.id in wrong for label in (entry.tier, entry.root))
    first = {row["id"]: row["kinds"] for row in rows if row["time"] == 0}
    kinds = Counter(kind for entry in cheats for kind in first.get(entry.id, ()))
    told = ", ".join(f"`{kind}` {count}" for kind, count in kinds.most_common())
    return {
        CAUGHT: f"{len(cheats)} cheats, {sum(entry.id not in wrong for entry in cheats)} caught;",
        CONDEMNED: f"{len(honest)} honest candidates, {sum(entry.id in wrong for entry in honest)} condemned",
        r"Findings that condemned: .*": f"Findings that condemned: {told}.",
        r"\[hacks\.csv, \d+ rows\]": f"[hacks.csv, {len(tried)} rows]",
        **{
            rf"\| `{name}` \| .* \|": f"| `{name}` | {what} | {all_of[name]} | {caught[name]} |"
            for name, what in (TIERS | ROOTS).items()
        },
    }


def figures_on_a_card(rows: Sequence[Row]) -> dict[str, str]:
    """The same for the measured path's page, whose table this writes."""
    cheats, honest = ([row for row in rows if entry_named(row["id"]).honest is which] for which in (False, True))
    by = Counter(row["by"] for row in cheats)
    found = [["entry", "outcome", "what it does", "evidence"]]
    for row in rows:
        what = entry_named(row["id"]).what
        if row["wrong"] is not None:
            found.append([row["id"], row["said"], what, NOT_CAUGHT.get(row["id"], str(row["wrong"]))])
        elif row["by"] == "co-judge" and row in cheats:
            found.append([row["id"], row["by"], what, ", ".join(f"`{kind}`" for kind in row["co_judged"])])
    right = sum(row["wrong"] is None for row in honest)
    headline = (
        f"Of {len(cheats)} cheats the measured path catches {by['measured path']} and the co-judge {by['co-judge']} "
        f"more; {by['without effect']} have no effect, {by['not caught']} are not caught. {right} of {len(honest)} "
        "honest twins pass."
    )
    link = write_table(CARD_PAGE.with_suffix(".csv"), found)
    return {r"(?s)\*\*Of .*?\*\*": f"**{headline}**", r"\[measured_path\.csv, .*": link}


def write(rows: Sequence[Row], on: str) -> None:
    """Write figures and tables into the pages of a place."""
    if on == "card":
        pages = {CARD_PAGE: figures_on_a_card(rows)}
    else:
        write_table(PAGE.with_suffix(".csv"), table(rows))
        said = figures(rows)
        pages = {PAGE: said} | {page: {pattern: said[pattern] for pattern in (CAUGHT, CONDEMNED)} for page in ALSO}
    for page, said in pages.items():
        page.write_text(with_figures(page.read_text(encoding="utf-8"), said), encoding="utf-8")
    print(f"wrote {', '.join(str(page.relative_to(ROOT)) for page in pages)}")


# ---- a process of the pool

TWINS: dict[str, Verdict] = {}


def begin() -> None:
    """Leave Ctrl-C to the pool, and end with it, however it ends."""
    signal.signal(signal.SIGINT, lambda *_: None)  # unlike SIG_IGN, this is not handed on to what is started
    linux.prctl(linux.PR_SET_PDEATHSIG, signal.SIGKILL)


@cache
def machinery(on: str) -> tuple[OpensSessions, dict[str, object]]:
    """The process's own, which ends with it, and settings of its gradings."""
    torch.set_num_threads(1)
    if on != "card":
        return SessionFactory(spares=0 if on else 1), {"device": on} if on else {}
    use_short_blocks(pytest.MonkeyPatch())
    return CardFactory(), dict(CARD_TERMS)


def graded(name: str, number: int, on: str) -> Row:
    """One grading."""
    entry = entry_named(name)
    factory, terms = machinery(on)
    verdict, wrong = try_entry(entry, factory, TWINS, **terms)
    if wrong is not None and on:
        verdict, wrong = try_entry(entry, factory, TWINS, **terms)
    kinds = [finding.kind for finding in verdict.findings if finding.severity == "hack"]
    said = {"said": outcome(entry, verdict), "kinds": kinds, "wrong": wrong}
    by, co_judged = caught_by(verdict, wrong)
    return {"id": name, "time": number, "on": on, **said, "by": by, "co_judged": co_judged}


def gradings(names: Sequence[str], times: int, jobs: int, kept: Path | None = None, on: str = "") -> Iterator[Row]:
    """Every entry's gradings, those of earlier runs first."""
    earlier = [row for row in kept_rows(kept) if row["time"] < times and row["id"] in names and row["on"] == on]
    yield from earlier
    known = {(row["id"], row["time"]) for row in earlier}
    wanted = [pair for pair in itertools.product(names, range(times)) if pair not in known]
    pool = ProcessPoolExecutor(jobs, get_context("spawn"), begin)
    try:
        for done in as_completed([pool.submit(graded, *pair, on) for pair in sorted(wanted, key=lambda pair: pair[1])]):
            keep_row(kept, done.result())
            yield done.result()
    finally:
        pool.shutdown(cancel_futures=True)


def main() -> int:
    """Grade, print, perhaps write; 1 when a cheat got through or an honest candidate was condemned."""
    parser = parser_of(__doc__)
    parser.add_argument("--write", action="store_true", help="write the figures of the page, and its table")
    parser.add_argument("--times", type=int, default=1, metavar="N", help="gradings of each entry (default 1)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), metavar="N", help="entries graded at a time")
    parser.add_argument("--rows", type=Path, metavar="FILE", help="keep rows here, and go on from those that it has")
    parser.add_argument("--on", default="", metavar="PLACE", help="'card', or a real GPU such as cuda:0")
    parser.add_argument("--sample", type=int, metavar="N", help="so many cheats, and so many honest ones")
    options = parser.parse_args()
    if options.write and (options.sample or options.on not in ("", "card")):
        parser.error("--write is for the whole corpus, without a GPU: a page's figures are of all entries")
    began = time.perf_counter()
    chosen = [graded_on_a_card(kind) if options.on else entries(kind) for kind in ("honest", "cheats")]
    names = [entry.id for of in chosen for entry in (sample(of, options.sample) if options.sample else of)]
    found = gradings(names, options.times, options.jobs, options.rows, options.on)
    try:
        rows = list(track(found, "grading", len(names) * options.times, console=Console(stderr=True)))
    except (KeyboardInterrupt, BrokenProcessPool) as error:
        then = "the same command goes on" if options.rows else "without --rows nothing is kept"
        print(f"interrupted ({type(error).__name__}): {then}", file=sys.stderr, flush=True)
        os._exit(130)  # whatever the pool still waits for
    bad = [row for row in rows if row["wrong"] is not None and not (options.on and row["id"] in NOT_CAUGHT)]
    for row in bad:
        print(f"{row['id']}, grading {row['time'] + 1} of {options.times}: {row['wrong']}")
    said = figures(rows)
    print(said[CAUGHT], said[CONDEMNED])
    print(f"{len(rows)} graded in {time.perf_counter() - began:.0f} s")
    if options.write:
        write(rows, options.on)
    return 1 if bad else 0


if __name__ == "__main__":
    raise SystemExit(main())
