"""What rejection does to the expected gradient, by enumeration: PRS ascends a shaped objective, MRS and truncation are
biased."""

import pytest
import torch

from drkernel.rl.maths.mismatch import MismatchSettings
from drkernel.rl.maths.rejection import keep_probability
from rl_tree import Tree, off_policy, prs_gradient

torch.set_num_threads(1)


def gap(got, exact):
    return float((got - exact).abs().max())


@pytest.mark.parametrize("n", [2, 3])
def test_prs_ascends_the_return_above_the_baseline_times_the_chance_to_stay(n):
    """In the mask alone the baseline is the plain mean; erased, it is the mean of what the others kept."""
    tree = Tree(5, actions=4, turns=1)
    keep = keep_probability(torch.tensor([0.1, 0.32, 0.38, 0.9]))
    p, returns, scores = tree.probabilities(), tree.returns()[:, 0], tree.scores()[:, 0]
    alive = float((p * keep).sum())
    means = {
        "mask": float((p * returns).sum()),
        "erase": float((p * keep * returns).sum()) / alive * (1 - (1 - alive) ** (n - 1)),  # 0 when none is kept
    }
    for form, mean in means.items():
        got = prs_gradient(tree, keep[:, None], n, form)[0]
        assert gap(got, tree.true_gradient()) > 1e-2, "PRS is biased in both forms"
        assert gap(got, torch.einsum("k,kp->p", p * keep * (returns - mean), scores)) < 1e-10
        everything = torch.ones(4, 1, dtype=torch.float64)
        assert gap(prs_gradient(tree, everything, n, form)[0], tree.true_gradient()) < 1e-10


def test_a_turn_that_is_never_rejected_keeps_its_gradient_only_where_rejection_is_in_the_mask_alone():
    """Second turns are rejected by their coverage. In the mask the first turn's gradient is exact, because its returns
    and its baseline are untouched; erased rewards change what the first turn is credited with."""
    tree = Tree(3, actions=2, turns=2, end=0.2)
    lazy = keep_probability(torch.linspace(0.25, 0.45, len(tree.outcomes)))
    keep = torch.stack([torch.ones_like(lazy), lazy], dim=1)
    true = tree.turn_gradients()
    masked, erased = (prs_gradient(tree, keep, 2, form) for form in ("mask", "erase"))
    assert gap(masked[0], true[0]) < 1e-10
    assert gap(erased[0], true[0]) > 1e-2
    # The rejected turn itself is biased either way. Its baseline: the others at that turn, all of them or the kept.
    assert gap(masked[1], true[1]) > 1e-2 and gap(erased[1], true[1]) > 1e-2
    p, there = tree.probabilities(), tree.mask()[:, 1].double()
    returns, scores = tree.returns()[:, 1], tree.scores()[:, 1]
    mean = float((p * there * returns).sum())  # of one other: its return where it reached the turn, else 0
    expected = torch.einsum("k,kp->p", p * there * lazy * (returns - mean), scores)
    assert gap(masked[1], expected) < 1e-10


NOTHING = MismatchSettings(mask=None, veto=None)
SEQUENCE = MismatchSettings(weight="sequence", truncate=None, mask=None, veto=None)


@pytest.mark.parametrize("n", [2, 3])
def test_sampling_elsewhere_is_biased_and_only_the_whole_sequence_weight_repairs_it(n):
    tree = Tree(6, turns=2)
    true = tree.true_gradient()
    assert gap(off_policy(tree, n, 0.0, NOTHING)[0], true) < 1e-10
    off = gap(off_policy(tree, n, 0.3, NOTHING)[0], true)
    assert off > 1e-3
    token = MismatchSettings(weight="token", truncate=None, mask=None, veto=None)
    truncated = MismatchSettings(weight="sequence", truncate=1.05, mask=None, veto=None)
    for biased in (token, truncated, MismatchSettings(bounds=(0.9, 1.1))):
        assert gap(off_policy(tree, n, 0.3, biased)[0], true) > 1e-3


def test_the_sequence_weight_is_exact_with_a_baseline_of_unweighted_others():
    # One group, no shrinking by rejection: the weight of the row is independent of the others that make its baseline.
    tree = Tree(6, turns=2, end=0.0)
    assert gap(off_policy(tree, 2, 0.3, SEQUENCE)[0], tree.true_gradient()) < 1e-10
    ragged = Tree(6, turns=2)
    assert gap(off_policy(ragged, 2, 0.3, SEQUENCE)[0], ragged.true_gradient()) < 1e-10


def test_mrs_rejects_what_lies_outside_its_bounds_and_its_bias_shrinks_with_the_mismatch():
    tree = Tree(6, turns=2)
    true = tree.true_gradient()
    gaps = []
    for spread in (0.3, 0.03, 0.003, 0.0003):
        got, found = off_policy(tree, 2, spread, MismatchSettings())
        gaps.append(gap(got, true))
        r = found.metrics
        assert r["geometric_mean_min"] < 0.999 or r["geometric_mean_max"] > 1.001 or r["rejected_token_fraction"] == 0
    assert gaps[-1] < 1e-3 < gaps[0]
