"""Rounding a small transformer: the diagnostics see it, more of it where rounding is coarser, and MRS rejects
accordingly."""

import pytest
import torch

import mismatch_stability as study
from drkernel.rl.maths.mismatch import MismatchSettings, mismatch

torch.set_num_threads(1)


@pytest.fixture(scope="module")
def policy():
    return study.pretrain(0, 20)


def sampled_by(policy, precision, settings=None):
    torch.manual_seed(3)
    prompt = torch.randint(study.VOCABULARY, (64, study.PROMPT))
    tokens, rollout = study.rollout(policy, prompt, precision)
    with torch.no_grad():
        logits = policy(tokens[:, :-1])[:, study.PROMPT - 1 :]
    train = logits.log_softmax(-1).gather(-1, tokens[:, study.PROMPT :, None])[..., 0]
    return train - rollout, mismatch(train, rollout, torch.ones_like(rollout), settings)


def test_the_diagnostics_see_rounding_and_how_coarse_it_is(policy):
    found = {name: sampled_by(policy, name)[1].metrics for name in ("fp32", "bf16", "int8", "int4")}
    assert found["fp32"]["max_abs_log_ratio"] < 1e-4
    for name in ("k3", "k2", "max_abs_log_ratio", "rejected_sequence_fraction"):
        values = [found[precision][name] for precision in ("fp32", "bf16", "int8", "int4")]
        assert values == sorted(values) and values[-1] > values[0], name
    assert found["fp32"]["ess_sequence"] > found["int8"]["ess_sequence"] > found["int4"]["ess_sequence"]


@pytest.mark.parametrize("precision", ["bf16", "int8", "int4"])
def test_mrs_keeps_exactly_the_answers_whose_mean_ratio_lies_within_its_bounds(policy, precision):
    gap, found = sampled_by(policy, precision, MismatchSettings(bounds=(0.995, 1.005)))
    mean = gap.mean(1).exp()
    inside = (mean >= 0.995) & (mean <= 1.005) & (gap.exp() >= 1e-4).all(1)
    assert torch.equal(found.keep_BT.all(1), inside) and torch.equal(found.keep_BT.any(1), inside)


def test_the_copy_is_undone_after_sampling(policy):
    before = policy(torch.zeros(1, 3, dtype=torch.int64))
    sampled_by(policy, "int4")
    assert torch.equal(policy(torch.zeros(1, 3, dtype=torch.int64)), before)
