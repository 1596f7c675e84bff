"""What rejection does to the expected gradient, by enumeration: PRS ascends a shaped objective, MRS and truncation are
biased."""

import pytest
import torch
from rl_tree import Tree, off_policy, prs_gradient

from drkernel.rl.maths.mismatch import MismatchSettings
from drkernel.rl.maths.rejection import keep_probability

torch.set_num_threads(1)


def gap(got, exact):
    return float((got - exact).abs().max())


@pytest.mark.parametrize("n", [2, 3])
def test_prs_ascends_the_return_above_the_baseline_times_the_chance_to_stay(n):
    tree = Tree(5, actions=4, turns=1)
    coverage = torch.tensor([0.1, 0.32, 0.38, 0.9])
    keep = keep_probability(coverage)
    got = prs_gradient(tree, keep, n)
    p, returns, scores = tree.probabilities(), tree.returns()[:, 0], tree.scores()[:, 0]
    assert gap(got, tree.true_gradient()) > 1e-2, "PRS is biased"
    # The baseline's mean: the others' kept returns averaged, 0 when none is kept.
    alive = float((p * keep).sum())
    mean = float((p * keep * returns).sum()) / alive * (1 - (1 - alive) ** (n - 1))
    assert gap(got, torch.einsum("k,kp->p", p * keep * (returns - mean), scores)) < 1e-10
    assert gap(prs_gradient(tree, torch.ones(4, dtype=torch.float64), n), tree.true_gradient()) < 1e-10


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
