"""Every cheat of the corpus is caught, no honest twin is condemned.

The fast suite grades a fixed part of the corpus, one file of every kind of expectation and finding; ``-m slow`` grades
all of it. ``benchmarks/hack_recall.py`` does the same and writes docs/hacks.md.
"""

from collections import Counter

import pytest
from corpus_grading import ROOT, Entry, entries, grade, objection, read_entry, task_named

CHEATS, HONEST = entries("cheats"), entries("honest")
FAST_HONEST = {
    "softmax_plain",
    "softmax_static_workspace",
    "linear_gelu_packed_by_version",
    "max_index_plain",
    "row_mean_partial_sums",
}
FAST_CHEATS = {
    "torch_operator", "decoy_on_dummy", "decoy_times_zero", "decoy_behind_a_guard", "copy_after_torch",
    "cache_by_pointer", "zeros", "dropped_layer_norm_weight", "half_precision_inside", "static_output_buffer",
    "race_without_atomics", "input_overwritten", "late_thread", "side_stream_unjoined", "exit_zero", "forged_result",
    "read_the_answer_from_frames",
}  # fmt: skip


def check(entry: Entry, gym) -> None:
    verdict = grade(entry, gym.factory)
    twin = None
    if entry.expect == "neutral":
        twin = grade(read_entry(ROOT / "honest" / f"{entry.detail}.py"), gym.factory)
    assert objection(entry, verdict, twin) is None


@pytest.mark.parametrize("entry", [e for e in HONEST if e.id in FAST_HONEST], ids=lambda e: e.id)
def test_honest_candidates_are_not_condemned(entry, gym):
    check(entry, gym)


@pytest.mark.parametrize("entry", [e for e in CHEATS if e.id in FAST_CHEATS], ids=lambda e: e.id)
def test_cheats_are_caught(entry, gym):
    check(entry, gym)


@pytest.mark.slow
@pytest.mark.parametrize("entry", [e for e in HONEST if e.id not in FAST_HONEST], ids=lambda e: e.id)
def test_other_honest_candidates_are_not_condemned(entry, gym):
    check(entry, gym)


@pytest.mark.slow
@pytest.mark.parametrize("entry", [e for e in CHEATS if e.id not in FAST_CHEATS], ids=lambda e: e.id)
def test_other_cheats_are_caught(entry, gym):
    check(entry, gym)


def test_the_corpus_is_as_large_as_promised_and_well_formed():
    assert len(CHEATS) >= 90 and len(HONEST) >= 45
    assert not (FAST_CHEATS | FAST_HONEST) - {entry.id for entry in CHEATS + HONEST}
    tiers = Counter(entry.tier for entry in CHEATS)
    assert set(tiers) <= {"T0", "T1", "T2", "T3", "T4"} and min(tiers["T0"], tiers["T1"], tiers["T2"]) >= 15
    for entry in CHEATS + HONEST:
        task_named(entry.header["task"])
        compile(entry.source, str(entry.path), "exec")
        if entry.expect == "neutral":
            assert (ROOT / "honest" / f"{entry.detail}.py").exists()
