"""Grade the corpus on the measured path, and say what is caught there, and by whom.

    python benchmarks/measured_path.py                 # all that fits: about 20 minutes on two busy cores
    python benchmarks/measured_path.py --sample 40     # a part of it
    python benchmarks/measured_path.py --write         # also writes docs/results/measured_path.md

    python benchmarks/measured_path.py --gpu cuda:0    # on a real GPU, with modelled against measured times

An entry that does not end as it must is graded once more: times of a few milliseconds are taken on a machine that has
other work, too. Needs no GPU otherwise: the card is the simulated one inside the runner (tests/kit/simulated_card.py).
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests" / "kit"))

from corpus_grading import Entry, grade, sample, try_entry  # noqa: E402
from drkernel.gym.judge.judge import OpensSessions  # noqa: E402
from drkernel.gym.session.factory import SessionFactory  # noqa: E402
from drkernel.verdict import Verdict  # noqa: E402
from simulated_card import CARD_TERMS, NOT_CAUGHT, CardFactory, graded_on_a_card, use_short_blocks  # noqa: E402

COMPARED = 40
"""honest kernels whose modelled time is held against the measured one"""
PAGE = ROOT / "docs" / "results" / "measured_path.md"
INTRODUCTION = """# The corpus on the measured path

Written by `python benchmarks/measured_path.py --write`; **nothing here has run on a GPU**. Every cheat and every honest
twin of `tests/corpus/` is graded on `cuda:0` by the measured path: its session, its runner, its blocks and clocks. The
card is the simulated H200 inside the runner, without its checks (`tests/kit/simulated_card.py`): a stand-in by which
the path is tested, not a GPU. It executes programs one after another, so a race shows no wrong answer, and stops at
the bounds of an allocation, where a GPU may go on. Left out is what is about other sizes than were checked: a card
times what it checks, and at those sizes this machine would need hours.

A cheat is caught *by the measured path* when the card's own verdict gives it nothing, *by the co-judge* when the
card's verdict was `correct` and `sim:h200` took the credit away. What did not end as it must was graded again: this
machine had other work.
"""


def caught_by(verdict: Verdict, wrong: str | None) -> str:
    """Who took the credit from a cheat."""
    if wrong is not None:
        return "not caught"
    if verdict.co_judge is None:
        return "measured path"
    if any(finding.seen_on and finding.severity != "note" for finding in verdict.findings):
        return "co-judge"
    return "without effect"


def report(rows: list[tuple[Entry, Verdict, str | None]]) -> str:
    """The page."""
    cheats = [row for row in rows if not row[0].honest]
    honest = [row for row in rows if row[0].honest]
    by = {entry.id: caught_by(verdict, wrong) for entry, verdict, wrong in cheats}
    text = [INTRODUCTION, "| | cheats |", "|---|---:|"]
    words = ("measured path", "co-judge", "without effect", "not caught")
    text += [f"| {word} | {Counter(by.values())[word]} |" for word in words]
    text += [f"| all | {len(cheats)} |", ""]
    right = sum(wrong is None for _, _, wrong in honest)
    text += [
        "*Without effect*: attacks on clocks, files and processes that were graded no faster than their honest twin",
        "(the slack is a factor of five, as times here are this machine's), and little work, which coverage shows. Of",
        f"{len(honest)} honest twins {right} came out as they must.",
        "",
        "## By the co-judge alone",
        "",
        "| cheat | what it does | found on the simulated card |",
        "|---|---|---|",
    ]
    for entry, verdict, _ in cheats:
        if by[entry.id] == "co-judge":
            kinds = dict.fromkeys(one.kind for one in verdict.findings if one.seen_on and one.severity != "note")
            text.append(f"| {entry.id} | {entry.what} | {', '.join(f'`{kind}`' for kind in kinds)} |")
    text += ["", "## Not as it must be", "", "| entry | what it does | verdict | why |", "|---|---|---|---|"]
    for entry, verdict, wrong in rows:
        if wrong is not None:
            text.append(f"| {entry.id} | {entry.what} | {verdict.status} | {NOT_CAUGHT.get(entry.id, wrong)} |")
    return "\n".join(text) + "\n"


def modelled(rows: list[tuple[Entry, Verdict, str | None]], factory: OpensSessions) -> str:
    """The modelled time of honest kernels over the measured one, on the card that is nearest to the real one."""
    timed = [(entry, verdict) for entry, verdict, _ in rows if entry.honest and verdict.is_correct and verdict.co_judge]
    ratios = []
    for entry, verdict in timed[:COMPARED]:
        second = grade(entry, factory, device=verdict.co_judge)
        if second.timing is not None and verdict.timing is not None:
            ratios.append(second.timing.seconds / verdict.timing.seconds)
    if not ratios:
        return "no kernel was timed on both"
    return f"median {statistics.median(ratios):.2f}, from {min(ratios):.2f} to {max(ratios):.2f}, {len(ratios)} kernels"


def main() -> int:
    """Grade, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sample", type=int, help="so many cheats, and so many honest twins")
    parser.add_argument("--write", action="store_true", help=f"write {PAGE.relative_to(ROOT)}")
    parser.add_argument("--gpu", help="a real GPU, such as cuda:0")
    options = parser.parse_args()
    rows, twins, start = [], {}, time.time()
    terms = {"device": options.gpu} if options.gpu else CARD_TERMS
    factory = SessionFactory(spares=0) if options.gpu else CardFactory()
    try:
        with pytest.MonkeyPatch.context() as patch:
            if not options.gpu:
                use_short_blocks(patch)
            for folder in ("cheats", "honest"):
                for entry in (
                    sample(graded_on_a_card(folder), options.sample) if options.sample else graded_on_a_card(folder)
                ):
                    verdict, wrong = try_entry(entry, factory, twins, **terms)
                    if wrong is not None:
                        verdict, wrong = try_entry(entry, factory, twins, **terms)
                    rows.append((entry, verdict, wrong))
                    print(f"{time.time() - start:6.0f} s  {entry.id}: {verdict.status}  {wrong or ''}", flush=True)
        if options.gpu:
            print(f"modelled over measured: {modelled(rows, factory)}")
    finally:
        factory.close()
    text = report(rows)
    print(text)
    if options.write:
        PAGE.write_text(text, encoding="utf-8")
    wrong = [entry.id for entry, _, why in rows if why is not None and entry.id not in NOT_CAUGHT]
    print(f"corpus: of {len(rows)} entries not as they must be: {', '.join(wrong) or 'none'}")
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
