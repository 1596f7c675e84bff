"""Grade the whole corpus of cheats and honest twins; the figures of docs/hacks.md and its table, docs/hacks.csv.

    python benchmarks/hack_recall.py            # prints the table, exit code 1 when anything is not as it must be
    python benchmarks/hack_recall.py --write    # also writes the page's figures and the table

Needs no GPU; some half an hour.
"""

import argparse
import sys
import time
from collections import Counter
from pathlib import Path

import torch

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests" / "kit"))

from corpus_grading import ROOTS, Entry, entries, try_entry  # noqa: E402
from drkernel.gym.session.factory import SessionFactory  # noqa: E402
from drkernel.verdict import Verdict  # noqa: E402
from surveys import with_figures, write_table  # noqa: E402

PAGE = ROOT / "docs" / "hacks.md"
CAUGHT, CONDEMNED = r"\d+ cheats, \d+ caught;", r"\d+ honest candidates, \d+ condemned"
ALSO = (ROOT / "README.md", ROOT / "docs" / "status.md")
"""pages that say how many there are, as :data:`PAGE` does in its first line"""

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


def table(rows: list[tuple[Entry, Verdict, str | None]]) -> list[list[str]]:
    """A row an entry: cheats, then honest ones."""
    found = [["entry", "tier", "root", "class", "what it does", "outcome"]]
    for entry, verdict, wrong in sorted(rows, key=lambda row: row[0].honest):
        number = entry.header.get("twin of" if entry.honest else "hacks", "")
        tier, root = ("honest", "") if entry.honest else (entry.tier, entry.root)
        said = outcome(entry, verdict) if wrong is None else f"NOT AS IT SHOULD BE: {wrong}"
        found.append([entry.id, tier, root, number, entry.what, said])
    return found


def figures(rows: list[tuple[Entry, Verdict, str | None]]) -> dict[str, str]:
    """What the page says of a run, by the patterns of what it said before."""
    cheats = [row for row in rows if not row[0].honest]
    caught = Counter(label for entry, _, wrong in cheats if wrong is None for label in (entry.tier, entry.root))
    all_of = Counter(label for entry, _, _ in cheats for label in (entry.tier, entry.root))
    kinds = Counter(f.kind for _, v, _ in cheats for f in v.findings if f.severity == "hack")
    condemned = sum(entry.honest and wrong is not None for entry, _, wrong in rows)
    told = ", ".join(f"`{kind}` {count}" for kind, count in kinds.most_common())
    return {
        CAUGHT: f"{len(cheats)} cheats, {sum(row[2] is None for row in cheats)} caught;",
        CONDEMNED: f"{len(rows) - len(cheats)} honest candidates, {condemned} condemned",
        r"Findings that condemned: .*": f"Findings that condemned: {told}.",
        r"\[hacks\.csv, \d+ rows\]": f"[hacks.csv, {len(rows)} rows]",
        **{
            rf"\| `{name}` \| .* \|": f"| `{name}` | {what} | {all_of[name]} | {caught[name]} |"
            for name, what in (TIERS | ROOTS).items()
        },
    }


def main() -> int:
    """Grade, print, perhaps write; 1 when a cheat got through or an honest candidate was condemned."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help="write the figures of docs/hacks.md, and docs/hacks.csv")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    rows: list[tuple[Entry, Verdict, str | None]] = []
    twins: dict[str, Verdict] = {}
    start = time.perf_counter()
    with SessionFactory() as factory:
        for entry in entries("honest") + entries("cheats"):
            rows.append((entry, *try_entry(entry, factory, twins)))
    for entry, _, wrong in rows:
        if wrong is not None:
            print(f"{entry.path}: {wrong}")
    bad = sum(wrong is not None for _, _, wrong in rows)
    for label in TIERS | ROOTS:
        mine = [wrong for entry, _, wrong in rows if not entry.honest and label in (entry.tier, entry.root)]
        print(f"{label}: {sum(w is None for w in mine)} of {len(mine)} caught")
    honest = [wrong for entry, _, wrong in rows if entry.honest]
    print(f"honest: {sum(w is not None for w in honest)} of {len(honest)} condemned")
    print(f"{len(rows)} graded in {time.perf_counter() - start:.0f} s")
    if arguments.write:
        write_table(PAGE.with_suffix(".csv"), table(rows))
        found = figures(rows)
        for page in (PAGE, *ALSO):
            said = found if page == PAGE else {pattern: found[pattern] for pattern in (CAUGHT, CONDEMNED)}
            page.write_text(with_figures(page.read_text(encoding="utf-8"), said), encoding="utf-8")
        print(f"wrote the figures of {PAGE.relative_to(ROOT)} and its table, and its counts in README and status")
    return 1 if bad else 0


if __name__ == "__main__":
    raise SystemExit(main())
