"""Rounding a small policy: the diagnostics see it, the more the coarser it is, and MRS rejects accordingly."""

import pytest
import torch

from drkernel.rl.maths.mismatch import MismatchSettings, mismatch
from long_answers import PROMPTS, VOCABULARY, Walkers, sample, train

torch.set_num_threads(1)


@pytest.fixture(scope="module")
def walkers():
    return Walkers(2)


def sampled_by(walkers, precision, settings=None):
    with torch.no_grad():
        tables, own = walkers.logprobs(precision), walkers.logprobs()
    first = torch.arange(2 * PROMPTS).repeat(4) * VOCABULARY
    rows, tokens = sample(tables, first, 64, torch.Generator().manual_seed(3))
    train_BT, rollout_BT = own[rows, tokens], tables[rows, tokens]
    return train_BT - rollout_BT, mismatch(train_BT, rollout_BT, torch.ones_like(rollout_BT), settings)


def test_the_diagnostics_see_rounding_and_how_coarse_it_is(walkers):
    order = ("float32", "bf16", "int8", "int4")
    found = {name: sampled_by(walkers, name)[1].metrics for name in order}
    assert found["float32"]["max_abs_log_ratio"] == 0
    for name in ("k3", "k2", "max_abs_log_ratio", "rejected_sequence_fraction"):
        values = [found[precision][name] for precision in order]
        assert values == sorted(values) and values[-1] > values[0], name
    assert found["bf16"]["ess_sequence"] > found["int8"]["ess_sequence"] > found["int4"]["ess_sequence"]


@pytest.mark.parametrize("precision", ["bf16", "int8", "int4"])
def test_mrs_keeps_exactly_the_answers_whose_mean_ratio_lies_within_its_bounds(walkers, precision):
    gap, found = sampled_by(walkers, precision, MismatchSettings(bounds=(0.995, 1.005)))
    mean = gap.mean(1).exp()
    inside = (mean >= 0.995) & (mean <= 1.005) & (gap.exp() >= 1e-4).all(1)
    assert torch.equal(found.keep_BT.all(1), inside) and torch.equal(found.keep_BT.any(1), inside)


def test_tokens_are_drawn_as_often_as_they_are_probable(walkers):
    tables = walkers.logprobs().detach()
    rows, tokens = sample(tables, torch.zeros(400, dtype=torch.int64), 40, torch.Generator().manual_seed(0))
    row = rows.mode().values.mode().values
    here = tokens[rows == row]
    assert len(here) > 500
    drawn = torch.bincount(here, minlength=VOCABULARY) / len(here)
    assert (drawn - tables[row].exp()).abs().max() < 0.06


def test_a_seed_learns_the_same_whatever_the_rates_of_others():
    runs = [train(Walkers(2), "float32", "none", 16, 2, torch.tensor([0.05, rate]), 8, 4) for rate in (0.05, 0.0)]
    qualities = [torch.tensor(run["quality"]) for run in runs]
    assert torch.equal(qualities[0][:, 0], qualities[1][:, 0]) and qualities[0][-1, 0] > qualities[0][0, 0]
    assert torch.allclose(qualities[1][0, 1], qualities[1][-1, 1])
