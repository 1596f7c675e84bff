"""Expected gradients by full enumeration in float64: which estimators are unbiased, and by how much the others are not.

Every ordered group of N trajectories of a tiny multi-turn problem goes through the real functions, weighted by its
probability. Trajectories end at different turns, by chance and by what was done, so groups shrink and rows stand alone.
"""

import pytest
import torch

from drkernel.rl.maths import advantages as adv
from drkernel.rl.maths import losses, otb
from rl_tree import Tree, expected_by_turn, flat_groups, shrinkage

torch.set_num_threads(1)
CASES = [(n, seed) for n in (2, 3, 4) for seed in (0, 1)]
over_groups = pytest.mark.parametrize(("n", "seed"), CASES)


def gap(got, exact):
    """Largest absolute difference."""
    return float((got - exact).abs().max())


@over_groups
def test_trloo_is_unbiased_turn_by_turn_with_ragged_trajectories(n, seed):
    tree = Tree(seed)
    members, weights, returns, group, valid, *_ = flat_groups(tree, n)
    assert float(weights.sum()) == pytest.approx(1, abs=1e-12) and not valid.all()
    got = expected_by_turn(tree, members, weights, adv.trloo(returns, group, valid))
    assert gap(got, tree.turn_gradients()) < 1e-10
    assert gap(got.sum(0), tree.true_gradient()) < 1e-10
    silent = expected_by_turn(tree, members, weights, adv.trloo(returns, group, valid, alone="zero"))
    assert gap(silent, tree.turn_gradients()) > 1e-4, "dropping rows without companions is biased"


@over_groups
def test_rloo_is_unbiased_turn_by_turn(n, seed):
    tree = Tree(seed)
    members, weights, returns, _, valid, task, trajectory, _ = flat_groups(tree, n)
    totals = tree.returns()[members][..., :1].expand(-1, -1, tree.turns).reshape(-1)
    got = expected_by_turn(tree, members, weights, adv.rloo(returns, totals, task, trajectory, valid))
    assert gap(got, tree.turn_gradients()) < 1e-10
    # The classic form credits a turn with rewards before it too: they have no expected gradient.
    classic = expected_by_turn(tree, members, weights, adv.rloo(totals, totals, task, trajectory, valid))
    assert gap(classic, tree.turn_gradients()) < 1e-10


def best_gradient(tree):
    """d E[max_t R_t] / d logits by the turn whose actions it flows through, [turns, P]."""
    best = torch.tensor([max(outcome.rewards) for outcome in tree.outcomes], dtype=torch.float64)
    by_turn = torch.einsum("k,ktp,k->tp", tree.probabilities(), tree.scores() * tree.mask()[..., None], best)
    value = sum(outcome.probability * max(outcome.rewards) for outcome in tree.outcomes)
    true = torch.autograd.grad(value, tree.logits, retain_graph=True)[0].reshape(-1)
    assert gap(by_turn.sum(0), true) < 1e-12, "what ends a trajectory does not depend on the logits"
    return by_turn


@over_groups
@pytest.mark.parametrize("shift", [0.0, -0.7])
def test_returns_of_the_best_are_the_gradient_of_the_best_of_history(n, seed, shift):
    """Leave-one-out over what each turn adds to the best so far, with rewards that may be penalties."""
    tree = Tree(seed)
    for outcome in tree.outcomes:
        outcome.rewards[:] = [reward + shift for reward in outcome.rewards]
    members, weights, summed, group, valid, _, trajectory, turn = flat_groups(tree, n)
    best = adv.flat_best_returns(tree.rewards()[members].reshape(-1), trajectory, turn, valid)
    got = expected_by_turn(tree, members, weights, adv.trloo(best, group, valid))
    assert gap(got, best_gradient(tree)) < 1e-10
    of_sums = expected_by_turn(tree, members, weights, adv.trloo(summed, group, valid)).sum(0)
    assert cosine(of_sums, best_gradient(tree).sum(0)) < 1 - 1e-3, "sums ascend something else"


@over_groups
@pytest.mark.parametrize("alone", ["return", "zero"])
def test_grpo_scales_each_turn_by_its_own_factor(n, seed, alone):
    tree = Tree(seed)
    members, weights, returns, group, valid, *_ = flat_groups(tree, n)
    got = expected_by_turn(tree, members, weights, adv.grpo(returns, group, valid, alone=alone))
    factors = shrinkage(tree, n, alone)
    assert gap(got, factors[:, None] * tree.turn_gradients()) < 1e-10
    assert float(factors[0]) == pytest.approx(1 - 1 / n, abs=1e-12), "the first turn has all n members"
    assert abs(float(factors[1] - factors[0])) > 0.01, "later groups are smaller and get another factor"
    if alone == "zero":
        assert factors.diff().max() < 0, "fewer members, smaller gradient"


def cosine(a, b):
    return float(torch.nn.functional.cosine_similarity(a, b, dim=0))


@over_groups
def test_biased_estimators_do_not_even_point_the_right_way(n, seed):
    tree = Tree(seed)
    members, weights, returns, group, valid, task, trajectory, turn = flat_groups(tree, n)
    rewards = tree.rewards()[members].reshape(-1)
    discounted = adv.flat_turn_returns(rewards, trajectory, turn, valid, gamma=0.4)
    true = tree.true_gradient()
    for got in (
        adv.grpo_std(returns, group, valid),
        adv.grpo(returns, group, valid),
        adv.kevin(discounted, task, valid),
        adv.kevin(returns, task, valid, std=False),
    ):
        expected = expected_by_turn(tree, members, weights, got).sum(0)
        assert cosine(expected, true) < 1 - 1e-5
    assert cosine(expected_by_turn(tree, members, weights, adv.trloo(returns, group, valid)).sum(0), true) > 1 - 1e-12


def per_batch(tree, members, valid, function):
    """Apply an estimator whose group is the whole batch to every enumerated group on its own."""
    groups = members.shape[0]
    rows = members.shape[1] * tree.turns
    returns = tree.returns()[members].reshape(groups, rows)
    valid = valid.reshape(groups, rows)
    return torch.stack([function(r, v) for r, v in zip(returns, valid, strict=True)]).reshape(-1)


@pytest.mark.parametrize("n", [2, 3])
def test_reinforce_with_a_batch_baseline(n):
    single, several = Tree(3, actions=3, turns=1), Tree(3, turns=2)
    for tree, unbiased in ((single, {"none", "leave_one_out"}), (several, {"none"})):
        members, weights, *_ = flat_groups(tree, n)
        valid = flat_groups(tree, n)[4]
        for baseline in ("none", "mean", "leave_one_out"):
            got = per_batch(tree, members, valid, lambda r, v, b=baseline: adv.reinforce(r, v, baseline=b))
            off = gap(expected_by_turn(tree, members, weights, got).sum(0), tree.true_gradient())
            assert (off < 1e-10) == (baseline in unbiased), (baseline, off)
    members, weights, *_ = flat_groups(single, n)
    valid = flat_groups(single, n)[4]
    got = per_batch(single, members, valid, lambda r, v: adv.reinforce(r, v, baseline="mean"))
    expected = expected_by_turn(single, members, weights, got).sum(0)
    assert gap(expected, (1 - 1 / n) * single.true_gradient()) < 1e-10


def otb_by_turn(tree, n, leave_one_out, kind):
    """Actions as tokens of one-turn trajectories: rows are trajectories, columns tokens."""
    members, weights = tree.groups(n)
    energy = otb.token_energy(tree.logprobs(), tree.sum_pi_squared())[members].flatten(0, 1)
    mask = tree.mask()[members].flatten(0, 1)
    group = torch.arange(members.shape[0]).repeat_interleave(n)
    weight = otb.realized_energy(energy, mask, kind=kind)
    got = otb.otb(
        tree.returns()[members].flatten(0, 1), weight, group, mask, leave_one_out=leave_one_out, epsilon=1e-12
    )
    return expected_by_turn(tree, members, weights, got.reshape(-1))


@over_groups
@pytest.mark.parametrize("kind", ["cumulative", "token"])
def test_otb_is_unbiased_token_by_token_only_when_a_sample_is_left_out_of_its_own_baseline(n, seed, kind):
    tree = Tree(seed)
    assert gap(otb_by_turn(tree, n, True, kind), tree.turn_gradients()) < 1e-10
    off = gap(otb_by_turn(tree, n, False, kind), tree.turn_gradients())
    assert off > 1e-3, "the paper's form, own sample included, is biased"


@pytest.mark.parametrize("n", [2, 3])
def test_otb_on_top_of_turns_is_unbiased(n):
    # Four tokens: two turns of two tokens each; reward only at the end of a turn; trajectories end anywhere.
    tree = Tree(4, turns=4, end=0.2)
    for outcome in tree.outcomes:
        outcome.rewards[:] = [
            r if t % 2 or t == len(outcome.rewards) - 1 else 0.0 for t, r in enumerate(outcome.rewards)
        ]
    members, weights = tree.groups(n)
    rows = lambda x: x[members].reshape(-1, 2, 2).flatten(0, 1)  # noqa: E731 - [groups*n*2 turns, 2 tokens]
    returns, mask = rows(tree.returns()), rows(tree.mask())
    trajectory = torch.arange(members.numel()).repeat_interleave(2)
    turn = torch.arange(2).repeat(members.numel())
    task = torch.arange(members.shape[0]).repeat_interleave(2 * n)
    got = otb.otb_turns(
        returns[:, 0],
        rows(tree.logprobs()),
        rows(tree.sum_pi_squared()),
        mask,
        adv.group_ids(task, turn),
        trajectory,
        turn,
        leave_one_out=True,
        epsilon=1e-12,
    )
    expected = expected_by_turn(tree, members, weights, got.reshape(-1))
    assert gap(expected, tree.turn_gradients()) < 1e-10


def gradient_variance(tree, baseline):
    """Trace of the covariance of Σ_t s_t (G_t − b_t) over trajectories, for baselines b per token position."""
    estimate = torch.einsum("ktp,kt->kp", tree.scores() * tree.mask()[..., None], tree.returns() - baseline)
    p = tree.probabilities()[:, None]
    mean = (p * estimate).sum(0)
    return float((p * (estimate - mean).square()).sum())


def best_baseline(tree):
    """The exact minimiser over per-position baselines, from the normal equations M b = c of the quadratic above."""
    scores, p = tree.scores() * tree.mask()[..., None], tree.probabilities()
    matrix = torch.einsum("k,ktp,kup->tu", p, scores, scores)
    target = torch.einsum("k,ktp,kup,ku->t", p, scores, scores, tree.returns())
    return torch.linalg.solve(matrix, target)


def population_otb(tree, kind):
    """The closed form with all outcomes as one group, weighted by probability: what an infinite group would give."""
    weight = otb.realized_energy(otb.token_energy(tree.logprobs(), tree.sum_pi_squared()), tree.mask(), kind=kind)
    group = torch.zeros(len(tree.outcomes))
    baseline = otb.optimal_token_baseline(
        tree.returns(),
        tree.probabilities()[:, None] * weight,
        group,
        tree.mask(),
        leave_one_out=False,
        epsilon=0.0,
    )
    return torch.stack([baseline[tree.mask()[:, t], t][0] for t in range(tree.turns)])


@pytest.mark.parametrize("share", ["none", "depth"])
@pytest.mark.parametrize("seed", range(5))
def test_the_closed_form_with_token_energy_minimises_the_variance_among_per_token_baselines(seed, share):
    tree = Tree(seed, actions=3, share=share)
    closed, exact = population_otb(tree, "token"), best_baseline(tree)
    assert gap(closed, exact) < 1e-10
    least = gradient_variance(tree, closed)
    for baseline in (
        population_otb(tree, "cumulative"),
        (tree.probabilities()[:, None] * tree.returns()).sum(0) / (tree.probabilities()[:, None] * tree.mask()).sum(0),
        torch.zeros(tree.turns, dtype=torch.float64),
        *(closed + 0.01 * torch.randn(8, tree.turns, dtype=torch.float64)),
    ):
        assert gradient_variance(tree, baseline) > least


@pytest.mark.parametrize("seed", range(5))
def test_the_closed_form_with_cumulative_energy_minimises_the_spread_of_the_running_sum(seed):
    tree = Tree(seed, actions=3)
    running = (tree.scores() * tree.mask()[..., None]).cumsum(1)
    energy = otb.realized_energy(otb.token_energy(tree.logprobs(), tree.sum_pi_squared()), tree.mask())
    assert gap(energy, running.square().sum(-1) * tree.mask()) < 1e-12, "energy is the running sum's squared norm"
    closed = population_otb(tree, "cumulative")
    p = tree.probabilities()[:, None] * tree.mask()

    def spread(baseline):
        return (p * running.square().sum(-1) * (tree.returns() - baseline).square()).sum(0)

    for step in (-1e-3, 1e-3):
        assert (spread(closed + step) > spread(closed)).all()
    slope = (p * energy * (tree.returns() - closed)).sum(0)
    assert slope.abs().max() < 1e-12


def test_with_shared_parameters_the_closed_form_is_no_longer_the_minimiser():
    tree = Tree(1, actions=3, share="all")
    exact = best_baseline(tree)
    least = gradient_variance(tree, exact)
    for kind in ("token", "cumulative"):
        assert gradient_variance(tree, population_otb(tree, kind)) > least * (1 + 1e-4)


@pytest.mark.parametrize(
    ("aggregation", "unbiased"),
    [
        ("fixed_scale_sum", True),
        ("turns_played", False),
        ("seq_mean_token_sum", True),
        ("seq_mean_token_mean", False),
        ("token_mean", False),
    ],
)
def test_only_aggregations_that_do_not_divide_by_sampled_lengths_keep_the_gradient(aggregation, unbiased):
    tree, n = Tree(0), 2
    members, weights, returns, group, valid, *_ = flat_groups(tree, n)
    advantages = adv.trloo(returns, group, valid).reshape(*members.shape, tree.turns)
    shares = torch.zeros_like(advantages)
    for i, rows in enumerate(tree.mask()[members]):
        leaf = torch.zeros(n, tree.turns, dtype=torch.float64, requires_grad=True)
        total = {"fixed_scale_sum": float(n), "turns_played": float(rows.sum()) / 2}.get(aggregation)
        losses.aggregate(leaf, rows, "fixed_scale_sum" if total else aggregation, total).backward()
        shares[i] = leaf.grad
    expected = expected_by_turn(tree, members, weights, (n * shares * advantages).reshape(-1)).sum(0)
    assert (cosine(expected, tree.true_gradient()) > 1 - 1e-12) == unbiased
    assert (gap(expected, tree.true_gradient()) < 1e-10) == unbiased
