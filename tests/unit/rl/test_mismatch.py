"""Mismatch weights, rejection and diagnostics against loops, known divergences and the symmetries they must have."""

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from drkernel.rl.maths.mismatch import MismatchSettings, diagnostics, log_ratios, mismatch, ratios

torch.set_num_threads(1)


def example(seed, rows=6, tokens=8, spread=0.3):
    g = torch.Generator().manual_seed(seed)
    rollout = -2 * torch.rand(rows, tokens, generator=g, dtype=torch.float64) - 0.1
    train = rollout + spread * torch.randn(rows, tokens, generator=g, dtype=torch.float64)
    mask = torch.rand(rows, tokens, generator=g) < 0.7
    return train, rollout, mask


def loop_ratio(train, rollout, mask, level, sequence):
    """Ratios by definition, token by token."""
    out = torch.zeros_like(train)
    for i in range(train.shape[0]):
        same = [k for k in range(train.shape[0]) if sequence[k] == sequence[i]]
        r = [float(train[k, j] - rollout[k, j]) for k in same for j in range(train.shape[1]) if mask[k, j]]
        for j in range(train.shape[1]):
            if mask[i, j]:
                own = [float(train[i, k] - rollout[i, k]) for k in range(train.shape[1]) if mask[i, k]]
                value = {"token": float(train[i, j] - rollout[i, j]), "sequence": sum(r), "geometric": sum(r) / len(r)}
                value["turn_geometric"] = sum(own) / len(own)
                out[i, j] = math.exp(value[level])
    return out


@pytest.mark.parametrize("level", ["token", "sequence", "geometric", "turn_geometric"])
@given(st.integers(0, 2**16), st.booleans())
@settings(max_examples=25, deadline=None)
def test_ratios_are_those_of_the_definition(level, seed, joined):
    train, rollout, mask = example(seed)
    sequence = torch.tensor([4, 4, 9, 9, 9, 1]) if joined else torch.arange(6)
    got = ratios(log_ratios(train, rollout, mask), mask, level, sequence if joined else None)
    assert torch.allclose(got, loop_ratio(train, rollout, mask, level, sequence), rtol=1e-9)


@pytest.mark.parametrize("level", ["token", "sequence", "geometric", "turn_geometric"])
@given(st.integers(0, 2**16), st.sampled_from([(0.9, 1.1), (0.5, 2.0), (0.999, 1.001)]))
@settings(max_examples=25, deadline=None)
def test_what_is_kept_lies_within_the_bounds_and_nothing_else_is_lost(level, seed, bounds):
    train, rollout, mask = example(seed)
    got = mismatch(train, rollout, mask, MismatchSettings(mask=level, bounds=bounds, veto=None))
    ratio = loop_ratio(train, rollout, mask, level, torch.arange(6))
    expected = mask & (ratio >= bounds[0]) & (ratio <= bounds[1])
    assert torch.equal(got.keep_BT, expected)
    assert got.metrics["rejected_token_fraction"] == pytest.approx(
        1 - float(expected.sum() / mask.sum().clamp_min(1)) if mask.any() else 0.0, abs=1e-6
    )
    assert torch.equal(got.weights_BT, expected.to(train.dtype)), "without weights, kept tokens weigh 1"


def test_the_default_is_mrs_with_the_recipes_bounds_and_veto():
    rollout = torch.full((4, 4), -1.0)
    train = rollout.clone()
    train[1] += 0.0005  # geometric mean within 0.1%
    train[2] += torch.tensor([0.01, 0.01, -0.02, 0.008])  # mean 0.002: out
    train[3] += torch.tensor([-9.5, 9.5, 0.0, 0.0])  # mean 0, but one token below 1e-4
    got = mismatch(train, rollout, torch.ones(4, 4))
    assert got.keep_BT.any(dim=1).tolist() == [True, True, False, False]
    assert got.keep_BT.all(dim=1).tolist() == [True, True, False, False]
    assert got.metrics["vetoed_sequence_fraction"] == 0.25
    assert got.metrics["rejected_sequence_fraction"] == 0.5
    assert got.metrics["above_fraction"] == 0.25 and got.metrics["below_fraction"] == 0.0


def test_turns_of_one_trajectory_are_judged_together_when_ids_are_given():
    rollout = torch.full((3, 2), -1.0)
    train = rollout + torch.tensor([[0.01, 0.01], [-0.01, -0.01], [0.01, 0.01]])
    alone = mismatch(train, rollout, torch.ones(3, 2))
    assert not alone.keep_BT.any()
    together = mismatch(train, rollout, torch.ones(3, 2), sequence_B=torch.tensor([5, 5, 8]))
    assert together.keep_BT.any(dim=1).tolist() == [True, True, False]
    assert together.metrics["rejected_sequence_fraction"] == 0.5


def test_a_turn_is_judged_by_its_own_tokens_when_asked():
    rollout = torch.full((3, 2), -1.0)
    train = rollout + torch.tensor([[0.01, 0.01], [-0.01, -0.01], [0.0, 0.0]])
    ids = torch.tensor([5, 5, 5])
    whole = mismatch(train, rollout, torch.ones(3, 2), MismatchSettings(), sequence_B=ids)
    turn = mismatch(train, rollout, torch.ones(3, 2), MismatchSettings(mask="turn_geometric"), sequence_B=ids)
    assert whole.keep_BT.all() and turn.keep_BT.any(dim=1).tolist() == [False, False, True]


@pytest.mark.parametrize("kind", ["k1", "k2", "k3"])
@given(st.integers(0, 2**16), st.sampled_from(["largest", "turn_largest"]), st.sampled_from([0.02, 0.1, 0.5]))
@settings(max_examples=25, deadline=None)
def test_a_trust_region_keeps_sequences_none_of_whose_tokens_diverges_by_more(kind, seed, level, bound):
    train, rollout, mask = example(seed)
    train[0, 3] = -math.inf  # impossible under the trainer
    sequence = torch.tensor([4, 4, 9, 9, 9, 1])
    rule = MismatchSettings(mask=level, bounds=(0.0, bound), divergence=kind, veto=None)
    got = mismatch(train, rollout, mask, rule, sequence_B=sequence)
    form = {"k1": abs, "k2": lambda r: r * r / 2, "k3": lambda r: math.exp(r) - 1 - r}[kind]
    for i in range(6):
        rows = [k for k in range(6) if (sequence[k] == sequence[i] if level == "largest" else k == i)]
        gaps = [float(train[k, j] - rollout[k, j]) for k in rows for j in range(8) if mask[k, j]]
        inside = max(map(form, gaps), default=0.0) <= bound
        assert got.keep_BT[i].tolist() == (mask[i] & inside).tolist()


@given(st.integers(0, 2**16))
@settings(max_examples=25, deadline=None)
def test_a_chain_keeps_what_all_its_criteria_keep_and_one_of_them_weighs(seed):
    train, rollout, mask = example(seed)
    chain = [
        MismatchSettings(mask="token", bounds=(0.7, 1.4), veto=None),
        MismatchSettings(weight="token", mask="turn_geometric", bounds=(0.9, 1.1)),
        MismatchSettings(mask="largest", bounds=(0.0, 0.3), veto=None),
    ]
    alone = [mismatch(train, rollout, mask, one).keep_BT for one in chain]
    for order in itertools.permutations(range(3)):
        got = mismatch(train, rollout, mask, [chain[k] for k in order])
        assert torch.equal(got.keep_BT, alone[0] & alone[1] & alone[2])
        assert all(torch.equal(got.keeps[place], alone[k]) for place, k in enumerate(order))
        weights = (train - rollout).exp().clamp_max(2.0)
        assert torch.allclose(got.weights_BT, torch.where(got.keep_BT, weights, 0.0))
    assert torch.equal(mismatch(train, rollout, mask, []).keep_BT, mask), "no criterion only measures"


def test_truncated_weights_and_off():
    rollout = torch.full((1, 3), -2.0)
    train = rollout + torch.log(torch.tensor([[0.5, 1.5, 8.0]]))
    got = mismatch(train, rollout, torch.ones(1, 3), MismatchSettings(weight="token", mask=None, veto=None))
    assert got.weights_BT[0].tolist() == pytest.approx([0.5, 1.5, 2.0])
    assert got.metrics["truncated_fraction"] == pytest.approx(1 / 3)
    assert got.metrics["weight_mean"] == pytest.approx(4 / 3)
    loose = MismatchSettings(weight="sequence", truncate=None, mask=None, veto=None)
    assert mismatch(train, rollout, torch.ones(1, 3), loose).weights_BT[0].tolist() == pytest.approx([6.0] * 3)
    off = mismatch(train, rollout, torch.ones(1, 3), MismatchSettings(mask=None, veto=None))
    assert off.keep_BT.all() and (off.weights_BT == 1).all()


@given(st.integers(0, 2**16), st.integers(1, 5))
@settings(max_examples=25, deadline=None)
def test_padding_and_order_change_nothing(seed, extra):
    train, rollout, mask = example(seed)
    rule = MismatchSettings(weight="token", bounds=(0.9, 1.1))
    base = mismatch(train, rollout, mask, rule)
    pad = lambda x, v: torch.nn.functional.pad(x, (0, extra, 0, extra), value=v)  # noqa: E731
    padded = mismatch(pad(train, math.nan), pad(rollout, math.nan), pad(mask.long(), 0), rule)
    assert torch.equal(padded.keep_BT[:6, :8], base.keep_BT) and not padded.keep_BT[6:].any()
    order = torch.randperm(6, generator=torch.Generator().manual_seed(seed))
    shuffled = mismatch(train[order], rollout[order], mask[order], rule)
    assert torch.equal(shuffled.weights_BT, base.weights_BT[order])
    for name, value in base.metrics.items():
        assert padded.metrics[name] == pytest.approx(value, abs=1e-9, nan_ok=True), name
        assert shuffled.metrics[name] == pytest.approx(value, abs=1e-9, nan_ok=True), name


def test_the_estimates_of_kl_and_chi_square_converge_to_the_truth():
    g = torch.Generator().manual_seed(0)
    rollout = torch.tensor([0.5, 0.3, 0.15, 0.05], dtype=torch.float64)
    train = torch.tensor([0.45, 0.33, 0.14, 0.08], dtype=torch.float64)
    drawn = torch.multinomial(rollout, 400_000, replacement=True, generator=g)
    r = (train.log() - rollout.log())[drawn].reshape(1000, 400)
    got = diagnostics(r, torch.ones(1000, 400))
    kl = float((rollout * (rollout / train).log()).sum())
    chi2 = float((train**2 / rollout).sum() - 1)
    assert got["k1"] == pytest.approx(kl, rel=0.1) and got["k3"] == pytest.approx(kl, rel=0.03)
    assert got["k2"] == pytest.approx(float((rollout * (train / rollout).log() ** 2).sum() / 2), rel=0.03)
    assert got["chi2_token"] == pytest.approx(chi2, rel=0.05)
    assert got["ess_token"] == pytest.approx(1 / (1 + chi2), rel=0.01)
    assert got["chi2_sequence"] > got["chi2_token"], "400 tokens multiply up"


def test_equal_policies_show_nothing():
    train, _, mask = example(1)
    metrics = mismatch(train, train, mask, MismatchSettings(weight="sequence")).metrics
    for name in ("k1", "k2", "k3", "max_abs_log_ratio", "chi2_token", "chi2_sequence", "rejected_token_fraction"):
        assert metrics[name] == pytest.approx(0, abs=1e-12), name
    for name in ("ess_token", "ess_sequence", "weight_mean", "geometric_mean_min", "geometric_mean_max"):
        assert metrics[name] == pytest.approx(1), name
    assert metrics["rollout_perplexity"] == pytest.approx(metrics["train_perplexity"])


def test_a_token_the_trainer_deems_impossible_is_vetoed_and_the_log_stays_finite():
    rollout, train = torch.full((2, 3), -1.0), torch.full((2, 3), -1.0)
    train[0, 1] = -math.inf
    got = mismatch(train, rollout, torch.ones(2, 3), MismatchSettings(weight="sequence", mask=None))
    assert got.keep_BT.any(dim=1).tolist() == [False, True]
    assert all(math.isfinite(v) for k, v in got.metrics.items() if k != "max_abs_log_ratio")


def test_broken_log_probabilities_and_settings_are_refused():
    good = torch.zeros(1, 2)
    with pytest.raises(ValueError, match="NaN or infinite"):
        mismatch(good, torch.tensor([[math.nan, 0.0]]), torch.ones(1, 2))
    with pytest.raises(ValueError, match="NaN or infinite"):
        mismatch(good, torch.tensor([[-math.inf, 0.0]]), torch.ones(1, 2))
    with pytest.raises(ValueError, match="must all be"):
        mismatch(good, torch.zeros(2, 1), torch.ones(1, 2))
    with pytest.raises(ValueError, match="choose token"):
        MismatchSettings(weight="turn")
    with pytest.raises(ValueError, match="choose token"):
        MismatchSettings(weight="largest")
    with pytest.raises(ValueError, match="choose k1"):
        MismatchSettings(mask="largest", divergence="kl")
    with pytest.raises(ValueError, match="several criteria have weights"):
        mismatch(good, good, torch.ones(1, 2), [MismatchSettings(weight="token")] * 2)
    with pytest.raises(ValueError, match="lower <= upper"):
        MismatchSettings(bounds=(1.1, 0.9))
    with pytest.raises(ValueError, match="must be > 0"):
        MismatchSettings(veto=0.0)
    assert mismatch(good, good, torch.zeros(1, 2)).metrics["tokens"] == 0
