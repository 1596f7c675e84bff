"""Expected gradients of trees of turns by full enumeration in float64: which estimators are unbiased, and the others'
bias.

Every tree that the sampler's rule can draw of a tiny multi-turn problem goes through the real functions, weighted by
its probability.
"""

import pytest
import torch

from contrib.trees.enumeration import Trees
from contrib.trees.forks import TreeConfig
from contrib.trees.maths import Forest, leaf_weights, path_weights, treepo, treepo_loo
from drkernel.rl.maths import advantages as adv
from rl_tree import Tree, expected_by_turn, flat_groups

torch.set_num_threads(1)
CONFIGS = [
    TreeConfig(width=3),
    TreeConfig(width=4, start=1, branching=3),
    TreeConfig(width=4, depth=2),
    TreeConfig(width=3, start=3),
]
trees_and_seeds = pytest.mark.parametrize(("config", "seed"), [(c, s) for c in CONFIGS for s in (0, 1)])
_made = {}


def make(config, seed, **terms):
    """All trees of a problem; made once."""
    key = (config, seed, tuple(terms.items()))
    if key not in _made:
        _made[key] = Trees(Tree(seed, **terms), config)
    return _made[key]


def gap(got, exact):
    """Largest absolute difference."""
    return float((got - exact).abs().max())


@trees_and_seeds
@pytest.mark.parametrize("subgroups", ["all", "nearest", "root"])
def test_leave_one_out_over_a_tree_is_unbiased_turn_by_turn(config, seed, subgroups):
    trees = make(config, seed)
    assert float(trees.chances.sum()) == pytest.approx(1, abs=1e-12)
    assert len(set(torch.bincount(trees.task).tolist())) > 1, "the trees differ in size"
    forest = trees.forest()
    got = treepo_loo(forest.returns(trees.rewards), forest, subgroups=subgroups)
    exact = trees.problem.turn_gradients()
    assert gap(trees.by_turn(got * path_weights(forest)), exact) < 1e-10
    lone = treepo_loo(forest.returns(trees.rewards), forest, subgroups=subgroups, alone="zero")
    assert gap(trees.by_turn(lone * path_weights(forest)), exact) > 1e-3, "nodes without others must keep their return"


@pytest.mark.parametrize("gamma", [0.4, 0.9])
def test_a_discount_is_that_of_the_flat_estimator(gamma):
    """Unbiased for the sum over turns of ∇log π_t · G_t with the discounted reward-to-go."""
    trees = make(CONFIGS[0], 0)
    forest = trees.forest()
    got = treepo_loo(forest.returns(trees.rewards, gamma), forest)
    problem = trees.problem
    returns = adv.turn_returns(problem.rewards(), problem.mask(), gamma)
    scores = problem.scores() * problem.mask()[..., None]
    exact = torch.einsum("k,ktp,kt->tp", problem.probabilities(), scores, returns)
    assert gap(trees.by_turn(got * path_weights(forest)), exact) < 1e-10


@pytest.mark.parametrize("seed", [0, 1])
def test_weights_by_paths_through_a_node_are_biased_where_forks_follow_the_draws(seed):
    trees = make(CONFIGS[0], seed)
    forest, exact = trees.forest(), trees.problem.turn_gradients()
    baselined = treepo_loo(forest.returns(trees.rewards), forest)
    assert gap(trees.by_turn(baselined * leaf_weights(forest)), exact) > 1e-3
    totals = torch.zeros(trees.count, dtype=torch.float64)
    totals.index_add_(0, trees.task, torch.where(trees.parent < 0, path_weights(forest), 0.0))
    assert gap(totals, torch.ones(trees.count)) < 1e-12


def regular_factor(turns, branching):
    """What a node at each depth keeps of its gradient in a regular tree, as stated in ``treepo``."""
    return torch.tensor(
        [sum(1 - branching ** (k - d) for k in range(d)) / turns for d in range(1, turns + 1)], dtype=torch.float64
    )


@pytest.mark.parametrize(("turns", "branching"), [(1, 3), (2, 2), (2, 3), (3, 2)])
def test_the_published_advantage_shrinks_early_turns_by_the_stated_factor(turns, branching):
    config = TreeConfig(width=branching**turns, branching=branching)
    trees = make(config, 2, turns=turns, end=0.0)
    forest, exact = trees.forest(), trees.problem.turn_gradients()
    assert set(trees.leaves) == {branching**turns}
    assert gap(leaf_weights(forest), path_weights(forest)) < 1e-12, "a regular tree"
    got = trees.by_turn(treepo(trees.rewards, forest) * leaf_weights(forest))
    factors = regular_factor(turns, branching)
    assert gap(got, factors[:, None] * exact) < 1e-10
    if turns > 1:
        assert float(factors[0]) < float(factors[-1]) < 1, "the first turn keeps least"
    fair = treepo_loo(forest.returns(trees.rewards), forest)
    assert gap(trees.by_turn(fair * path_weights(forest)), exact) < 1e-10


@pytest.mark.parametrize("std", [False, True])
def test_the_published_advantage_is_biased_in_irregular_trees(std):
    trees = make(CONFIGS[0], 0)
    forest, exact = trees.forest(), trees.problem.true_gradient()
    got = trees.by_turn(treepo(trees.rewards, forest, std=std) * leaf_weights(forest)).sum(0)
    assert float(torch.nn.functional.cosine_similarity(got, exact, dim=0)) < 1 - 1e-5


def brute_force(trees, number):
    """The published advantage of one tree, path by path, written down as plainly as it can be."""
    rows = (trees.task == number).nonzero()[:, 0].tolist()
    parents = {row: int(trees.parent[row]) for row in rows}
    leaves = [row for row in rows if row not in parents.values()]

    def path(leaf):
        found = [leaf]
        while parents[found[0]] >= 0:
            found.insert(0, parents[found[0]])
        return found

    paths = [path(leaf) for leaf in leaves]
    totals = [float(trees.rewards[p].sum()) for p in paths]
    found = {row: [] for row in rows}
    for mine, total in zip(paths, totals, strict=True):
        parts = []
        for k in range(len(mine)):
            others = [t for p, t in zip(paths, totals, strict=True) if p[:k] == mine[:k]]
            if k == 0 or len(others) > 1:
                parts.append(total - sum(others) / len(others))
        for row in mine:
            found[row].append(sum(parts) / len(parts))
    return rows, torch.tensor([sum(found[row]) / len(found[row]) for row in rows], dtype=torch.float64)


def test_the_published_advantage_equals_brute_force():
    trees = make(CONFIGS[1], 1)
    got = treepo(trees.rewards, trees.forest())
    for number in range(0, trees.count, max(1, trees.count // 60)):
        rows, expected = brute_force(trees, number)
        assert gap(got[rows], expected) < 1e-12


def test_on_trajectories_that_share_nothing_it_is_trloo_and_grpo():
    tree = Tree(0)
    members, weights, returns, group, valid, task, _, turn = flat_groups(tree, 3)
    rewards = tree.rewards()[members].reshape(-1)
    rows = torch.arange(len(rewards))
    parent = torch.where((turn > 0) & valid, rows - 1, -1)
    forest = Forest(parent, task, turn, valid)
    flat = adv.trloo(returns, group, valid)
    assert gap(forest.returns(rewards)[valid], returns[valid]) < 1e-12
    for subgroups in ("all", "nearest", "root"):
        assert gap(treepo_loo(forest.returns(rewards), forest, subgroups=subgroups), flat) < 1e-12
    assert gap(path_weights(forest)[valid], 1 / 3) < 1e-12
    first = valid & (turn == 0)
    single = Forest(torch.full_like(parent, -1)[first], task[first], turn[first], valid[first])
    plain = adv.grpo(rewards[first], task[first], valid[first])
    assert gap(treepo(rewards[first], single), plain) < 1e-12
    fair = expected_by_turn(tree, members, weights, treepo_loo(forest.returns(rewards), forest) * valid)
    assert gap(fair, tree.turn_gradients()) < 1e-10


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize(("width", "kept"), [(2, 0.7), (4, 1 - 0.3**2)])
def test_grades_lost_at_random_only_remove_data(width, kept, seed):
    """Last turns lose their grade with probability 0.3, whatever was drawn. What remains of the gradient of their
    rewards is the chance that a parent's children do not all lose it: nothing else is lost, and nothing leans."""
    trees = make(TreeConfig(width=width), seed, turns=2, end=0.0)
    last = trees.turn == 1
    position = torch.zeros(len(last), dtype=torch.int64)
    for number in range(trees.count):
        rows = ((trees.task == number) & last).nonzero()[:, 0]
        position[rows] = torch.arange(len(rows))
    total = torch.zeros_like(trees.problem.turn_gradients())
    for pattern in range(2**width):
        lost = torch.tensor([bool(pattern >> k & 1) for k in range(width)])
        gone = last & lost[position]
        forest = trees.forest(~gone)
        got = treepo_loo(forest.returns(trees.rewards), forest) * path_weights(forest)
        assert not got[gone].any()
        total += trees.by_turn(got) * 0.3 ** int(lost.sum()) * 0.7 ** int((~lost).sum())
    exact = trees.problem.turn_gradients()
    at_once = torch.einsum(
        "k,kp,k->p",
        trees.problem.probabilities(),
        trees.problem.scores()[:, 0],
        trees.problem.rewards()[:, 0],
    )
    assert gap(total[0], at_once + kept * (exact[0] - at_once)) < 1e-10
    assert gap(total[1], kept * exact[1]) < 1e-10


def test_forests_that_are_none_are_refused():
    def forest(parent, task=(0, 0)):
        return Forest(torch.tensor(parent), torch.tensor(task), torch.tensor([0, 1]), torch.ones(2, dtype=torch.bool))

    with pytest.raises(ValueError, match="circle"):
        forest([1, 0])
    with pytest.raises(ValueError, match="row of the batch"):
        forest([-1, 2])
    with pytest.raises(ValueError, match="same task"):
        forest([-1, 0], (0, 1))
