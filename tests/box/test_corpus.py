"""Every cheat of the corpus is caught, no honest twin is condemned.

The fast suite grades a fixed, stratified sample and everything marked new; ``-m slow`` (``make test-slow``) grades all
of it. ``benchmarks/hack_recall.py`` does the same and writes docs/hacks.md.
"""

from collections import Counter

import pytest

from corpus_grading import ROOT, ROOTS, Entry, entries, entry_named, read_entry, sample, task_named, try_entry
from gym_harness import GRADING
from hack_recall import PAGE, Row, figures, gradings, table, with_figures
from surveys import keep_row

CHEATS, HONEST = entries("cheats"), entries("honest")
CHEATS_IN_SAMPLE = 40
FAST = sample(CHEATS, CHEATS_IN_SAMPLE) + sample(HONEST, 12)
REST = [entry for entry in CHEATS + HONEST if entry not in FAST]
TWINS: dict = {}


def check(entry: Entry, gym) -> None:
    terms = {"own_seconds": 2.0, "seed": GRADING["seed"]}  # what is dearer, and other draws, hack_recall.py tries
    _, wrong = try_entry(entry, gym.factory, TWINS, **terms)
    assert wrong is None


@pytest.mark.parametrize("entry", FAST, ids=lambda e: e.id)
def test_a_sample_of_the_corpus(entry, gym):
    check(entry, gym)


def test_a_conjugated_view_is_read_as_the_numbers_that_it_shows(gym):
    check(entry_named("conjugated_view"), gym)


@pytest.mark.slow
@pytest.mark.parametrize("entry", REST, ids=lambda e: e.id)
def test_the_rest_of_the_corpus(entry, gym):
    check(entry, gym)


def test_the_sample_is_the_same_in_every_run_and_has_something_of_everything():
    assert [entry.id for entry in sample(list(reversed(CHEATS)), CHEATS_IN_SAMPLE)[:CHEATS_IN_SAMPLE]] == [
        entry.id for entry in FAST[:CHEATS_IN_SAMPLE]
    ]
    assert len(FAST) >= 40 and len({entry.id for entry in FAST}) == len(FAST)
    for kind in ("root", "tier", "expect"):
        assert {getattr(entry, kind) for entry in FAST} == {getattr(entry, kind) for entry in CHEATS + HONEST}
    assert all(entry in FAST for entry in CHEATS + HONEST if entry.new)


def test_the_corpus_is_as_large_as_promised_and_well_formed():
    assert len(CHEATS) >= 148 and len(HONEST) >= 90
    assert len({entry.id for entry in CHEATS + HONEST}) == len(CHEATS + HONEST), "a base is named without its folder"
    tiers = Counter(entry.tier for entry in CHEATS)
    assert set(tiers) <= {"T0", "T1", "T2", "T3", "T4"} and min(tiers["T0"], tiers["T1"], tiers["T2"]) >= 15
    for entry in CHEATS + HONEST:
        assert entry.root in ROOTS
        task_named(entry.header["task"])
        compile(entry.source, str(entry.path), "exec")
        if entry.has_twin:
            assert (ROOT / "honest" / f"{entry.detail}.py").exists()


def test_every_figure_of_a_run_has_a_place_on_the_page_of_cheats():
    page = with_figures(PAGE.read_text(encoding="utf-8"), figures([]))
    assert "**0 cheats, 0 caught;" in page and "| `T0` | no work done | 0 | 0 |" in page
    with pytest.raises(ValueError, match="0 places"):
        with_figures(page.replace("T0", "T9"), figures([]))


def row(name: str, number: int, wrong: str | None = None) -> Row:
    return {"id": name, "time": number, "on": "", "said": "hack: reuse", "kinds": ["reuse"], "wrong": wrong}


def test_an_entry_that_once_came_out_wrong_counts_as_that():
    cheat, honest = CHEATS[0].id, HONEST[0].id
    rows = [row(cheat, 0), row(cheat, 1, "accepted"), row(cheat, 2), row(honest, 0), row(honest, 1)]
    assert {"1 cheats, 0 caught;", "1 honest candidates, 0 condemned"} < set(figures(rows).values())
    assert [line[0] for line in table(rows)[1:]] == [cheat, honest]
    assert table(rows)[1][-1] == "NOT AS IT SHOULD BE: accepted"


@pytest.mark.slow
def test_gradings_go_on_where_a_run_was_interrupted(tmp_path):
    names, kept = [CHEATS[0].id, HONEST[0].id], tmp_path / "rows.jsonl"
    keep_row(kept, row(names[0], 0, "kept"))
    keep_row(kept, {**row(names[1], 0, "elsewhere"), "on": "card"})
    interrupted = gradings(names, 2, 1, kept)
    assert [next(interrupted)["wrong"], next(interrupted)["wrong"]] == ["kept", None]
    interrupted.close()
    assert 3 <= len(kept.read_text().splitlines()) < 5
    rows = list(gradings(names, 2, 2, kept))
    assert sorted((row["id"], row["time"]) for row in rows) == sorted((name, n) for name in names for n in range(2))


def test_attacks_are_not_caught_by_comparison_alone():
    """Attacks on processes, files and clocks come with a right answer, so that only the mechanism can stop them."""
    hollow = [e.id for e in CHEATS if e.tier in ("T2", "T3", "T4") and "return torch.zeros_like(" in e.source]
    assert not hollow


def test_an_unknown_root_is_refused(tmp_path):
    file = tmp_path / "x.py"
    file.write_text("# task: softmax\n# expect: correct\n# root: nonsense\n# What.\n")
    with pytest.raises(ValueError, match="no root is called"):
        read_entry(file)
