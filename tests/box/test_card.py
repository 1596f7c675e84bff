"""The measured path as a whole, on a card: the simulated GPU inside the runner (``tests/kit/simulated_card.py``)."""

import pytest
import torch
from test_cuda_session import TRITON, runs_triton

from corpus_grading import entry_named, objection, try_entry
from corpus_grading import grade as grade_entry
from drkernel.gym.judge import measured_timing
from drkernel.gym.request import EvalSettings
from simulated_card import CARD_TERMS, NOT_CAUGHT, CardFactory, graded_on_a_card, nvml, use_short_blocks


@pytest.fixture
def card(cards, monkeypatch):
    use_short_blocks(monkeypatch)
    return cards


@pytest.fixture(scope="session")
def twins():
    return {}


def grade(name: str, card: CardFactory, **settings):
    return grade_entry(entry_named(name), card, **CARD_TERMS, **settings)


def test_a_session_on_the_card(card):
    with card.open(EvalSettings(device="cuda:0")) as session:
        runs_triton(session, 1 << 12)


@pytest.mark.parametrize("name", ["softmax_plain", "layer_norm_plain"])
def test_honest_kernels_are_correct_covered_and_trusted(card, name):
    verdict = grade(name, card)
    assert verdict.is_correct and verdict.device == "cuda:0", (verdict.status, verdict.error, verdict.findings)
    assert verdict.timing.kind == verdict.speedup.kind == verdict.profile.kind == "measured"
    assert verdict.coverage > 0.9 and verdict.coverage_source == "runner"
    assert verdict.co_judge == "sim:h200" and verdict.not_checked == () and verdict.phases["co_judge"] > 0


@pytest.mark.parametrize("name", ["softmax_asks_for_registers", "max_index_gathered", "running_centre"])
def test_honest_kernels_that_the_measured_path_condemned(card, name):
    """One is launched as it was compiled ahead; without the next one's kernel PyTorch reads out of bounds, which ends a
    real GPU's session; the last one's answer depends on a buffer that every call changes."""
    verdict = grade(name, card)
    assert verdict.is_correct and verdict.co_judge, (verdict.status, verdict.error, verdict.findings)


def test_a_kernel_that_names_itself_is_the_candidates_own(card):
    """``repr`` gives the compiled kernel its name; by the function's it was a library's in the profile."""
    with card.open(EvalSettings(device="cuda:0")) as session:
        session.load(TRITON.replace("@triton.jit", "@triton.jit(repr=lambda specialised: 'doubled')"), [], {}, seed=0)
        result = session.call([torch.randn(1000)])
        rows = {row.name: row.owner for row in session.profile(result.arguments).rows}
        assert [launch.name for launch in result.record.launches] == ["doubled"] and rows["doubled"] == "custom"


def test_each_timed_call_at_own_sizes_finds_the_state_as_it_was(card):
    """Of the reference's runner, which answers the same call, too."""
    terms = {**CARD_TERMS, "time_at": "own", "checked_bytes": 4096}
    verdict = grade_entry(entry_named("running_centre"), card, **terms)
    assert verdict.is_correct and verdict.checked_at.changed and not verdict.timed_at.changed, verdict.correctness


BARE = {"co_judge": "off", "checks": 1, "knock_out": False, "other_calls": False}


@pytest.fixture
def blocks(monkeypatch):
    """``blocks(candidate, reference)``: MHz of the card in the pairs of blocks from the first that counts on, the last
    for all that follow; returns the list of pairs that were measured."""
    measured = []

    def play(**clocks):
        for side, figures in clocks.items():
            original = getattr(measured_timing._Pairs, f"_{side}_block")

            def block(pairs, number, original=original, figures=figures, side=side):
                nvml().set_clock(figures[min(max(number, 0), len(figures) - 1)], 4)
                if side == "candidate" and number >= 0:
                    measured.append(number)
                return original(pairs, number)

            monkeypatch.setattr(measured_timing._Pairs, f"_{side}_block", block)
        return measured

    return play


def test_clocks_of_the_card_are_in_the_verdict(card, blocks):
    """Two pairs that differ are measured again, and nothing is left of them."""
    measured = blocks(candidate=[1980, 1400, 1980, 2100, 1980], reference=[1965])
    verdict = grade("softmax_plain", card, **BARE)
    assert measured == [*range(6)] and not [one for one in verdict.findings if one.kind == "clocks_differ"]
    assert verdict.timing.clocks_mhz == (1980.0,) * 4 and verdict.reference_timing.clocks_mhz == (1965.0,) * 4
    assert verdict.timing.slowed_by == ("power",) and "clocks_differ" not in {one.check for one in verdict.not_checked}


@pytest.mark.parametrize("mhz, said", [(1980, "divided by 1.20"), (1375, "the speedup stands")])
def test_a_clock_that_never_agrees_gains_nothing(card, blocks, mhz, said):
    measured = blocks(candidate=[mhz], reference=[1650])
    verdict = grade("softmax_plain", card, **BARE)
    (note,) = [one for one in verdict.findings if one.kind == "clocks_differ"]
    assert len(measured) == 4 + measured_timing.MOST_REFUSED and verdict.is_correct and said in note.message
    assert note.severity == "note" and (note.evidence["mhz"], note.evidence["reference_mhz"]) == (mhz, 1650)
    by_times = verdict.reference_timing.seconds / verdict.timing.seconds
    assert verdict.speedup.value == pytest.approx(by_times / max(1, mhz / 1650))
    assert verdict.speedup.low <= verdict.speedup.value <= verdict.speedup.high


@pytest.mark.parametrize("terms", [BARE, {}])
def test_a_machine_without_nvml_says_that_no_clock_was_read(card, monkeypatch, terms):
    monkeypatch.setattr("drkernel.gym.device.NVML", "libnvidia-ml-that-is-not-here.so.1")
    verdict = grade("softmax_plain", card, **terms)
    (why,) = [one.why for one in verdict.not_checked if one.check == "clocks_differ"]
    assert "cannot open shared object file" in why and verdict.is_correct and verdict.speedup is not None
    assert verdict.timing.clocks_mhz == () and bool(verdict.co_judge) == (terms == {})


def test_cheats_that_the_card_shows_need_no_co_judge(card):
    verdict = grade("decoy_on_dummy", card)
    assert verdict.is_hack and verdict.co_judge is None and verdict.not_checked


REST = [entry for folder in ("cheats", "honest") for entry in graded_on_a_card(folder) if entry.id not in NOT_CAUGHT]


@pytest.mark.slow
@pytest.mark.parametrize("entry", REST, ids=lambda e: e.id)
def test_the_corpus_on_the_card(entry, card, twins):
    """A clock of a few milliseconds on a busy machine gets a second chance."""
    for _ in range(2):
        _, wrong = try_entry(entry, card, twins, **CARD_TERMS)
        if wrong is None:
            return
    raise AssertionError(wrong)


UNSEEN = [
    ("copy_after_torch", "copy_kernel"), ("decoy_behind_a_guard", "decoy_kernel"), ("host_computes", "host_compute"),
    ("argument_small_term_left_out", "not_equivalent"),
]  # fmt: skip


@pytest.mark.parametrize("name, kind", UNSEEN)
def test_cheats_that_the_card_does_not_show_are_caught_by_the_co_judge(card, name, kind):
    entry = entry_named(name)
    alone = grade(name, card, co_judge="off")
    assert objection(entry, alone) is not None and alone.is_correct and alone.co_judge is None
    together = grade(name, card)
    assert objection(entry, together) is None
    assert [one.seen_on for one in together.findings if one.kind == kind] == ["sim:h200"]
    assert together.timing.kind == "measured" and together.speedup is None
