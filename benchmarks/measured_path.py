"""Grade the corpus on the measured path, and say what is caught there, and by whom.

    python benchmarks/measured_path.py                 # all that fits: about 20 minutes on two busy cores
    python benchmarks/measured_path.py --sample 40     # a part of it
    python benchmarks/measured_path.py --write         # also writes docs/results/measured_path.md

    python benchmarks/measured_path.py --gpu cuda:0 --part 0/8    # every eighth entry, on a real GPU

An entry that does not end as it must is graded once more: times of a few milliseconds are taken on a machine that has
other work, too. Needs no GPU otherwise: the card is the simulated one inside the runner (tests/kit/simulated_card.py).
"""

import sys
import time
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests" / "kit"))

from corpus_grading import Entry, sample, try_entry  # noqa: E402
from drkernel.gym.session.factory import SessionFactory  # noqa: E402
from drkernel.verdict import Verdict  # noqa: E402
from simulated_card import CARD_TERMS, NOT_CAUGHT, CardFactory, graded_on_a_card, use_short_blocks  # noqa: E402
from surveys import parser_of, with_figures, write_table  # noqa: E402

PAGE = ROOT / "docs" / "results" / "measured_path.md"


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
    """The page; writes its table beside it."""
    cheats = [row for row in rows if not row[0].honest]
    honest = [row for row in rows if row[0].honest]
    by = {entry.id: caught_by(verdict, wrong) for entry, verdict, wrong in cheats}
    counts = Counter(by.values())
    table = [["entry", "outcome", "what it does", "evidence"]]
    for entry, verdict, wrong in rows:
        if wrong is not None:
            table.append([entry.id, verdict.status, entry.what, NOT_CAUGHT.get(entry.id, wrong)])
        elif by.get(entry.id) == "co-judge":
            kinds = dict.fromkeys(one.kind for one in verdict.findings if one.seen_on and one.severity != "note")
            table.append([entry.id, "co-judge", entry.what, ", ".join(f"`{kind}`" for kind in kinds)])
    right = sum(wrong is None for _, _, wrong in honest)
    headline = (
        f"Of {len(cheats)} cheats the measured path catches {counts['measured path']} and the co-judge "
        f"{counts['co-judge']} more; {counts['without effect']} have no effect, {counts['not caught']} are not caught. "
        f"{right} of {len(honest)} honest twins pass."
    )
    link = write_table(PAGE.with_suffix(".csv"), table)
    said = {r"(?s)\*\*Of .*?\*\*": f"**{headline}**", r"\[measured_path\.csv, .*": link}
    return with_figures(PAGE.read_text(encoding="utf-8"), said)


def main() -> int:
    """Grade, print, write."""
    parser = parser_of(__doc__)
    parser.add_argument("--sample", type=int, help="so many cheats, and so many honest twins")
    parser.add_argument("--write", action="store_true", help=f"write {PAGE.relative_to(ROOT)}")
    parser.add_argument("--gpu", help="a real GPU, such as cuda:0")
    parser.add_argument("--part", default="0/1", help="I/N: every Nth entry")
    options = parser.parse_args()
    rows, twins, start = list[tuple[Entry, Verdict, str | None]](), dict[str, Verdict](), time.time()
    index, parts = map(int, options.part.split("/"))
    terms = {"device": options.gpu} if options.gpu else CARD_TERMS
    factory = SessionFactory(spares=0) if options.gpu else CardFactory()
    try:
        with pytest.MonkeyPatch.context() as patch:
            if not options.gpu:
                use_short_blocks(patch)
            for folder in ("cheats", "honest"):
                of = graded_on_a_card(folder)
                for entry in (sample(of, options.sample) if options.sample else of)[index::parts]:
                    verdict, wrong = try_entry(entry, factory, twins, **terms)
                    if wrong is not None:
                        verdict, wrong = try_entry(entry, factory, twins, **terms)
                    rows.append((entry, verdict, wrong))
                    print(f"{time.time() - start:6.0f} s  {entry.id}: {verdict.status}  {wrong or ''}", flush=True)
    finally:
        factory.close()
    print(Counter(caught_by(verdict, wrong) for entry, verdict, wrong in rows if not entry.honest))
    if options.write:
        PAGE.write_text(report(rows), encoding="utf-8")
    others = [entry.id for entry, _, why in rows if why is not None and entry.id not in NOT_CAUGHT]
    print(f"corpus: of {len(rows)} entries not as they must be: {', '.join(others) or 'none'}")
    return 1 if others else 0


if __name__ == "__main__":
    raise SystemExit(main())
