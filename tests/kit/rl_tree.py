"""A tiny multi-turn problem whose every trajectory is enumerated, in float64: what expected gradients are checked
against.

The policy is tabular softmax. A turn is one action ("token") out of ``actions``; after it the environment may end the
trajectory, with a probability that depends on the history, or go on. Rewards depend on the whole history. An *outcome*
is one trajectory: its probability, rewards, and the gradient of the log-probability of each of its actions.
"""

import itertools
import math
from dataclasses import dataclass

import torch

from drkernel.rl.maths import advantages as adv
from drkernel.rl.maths.mismatch import mismatch


@dataclass
class Outcome:
    """One trajectory of the tree."""

    probability: torch.Tensor
    """Float64 scalar, differentiable by the policy's logits."""
    states: list[int]
    """Index of the state (row of the table) at each turn."""
    actions: list[int]
    """Action taken at each turn."""
    rewards: list[float]
    """Reward of each turn."""


class Tree:
    """All outcomes of a random problem.

    ``share`` says which histories use one row of logits: "none" (every history its own), "depth" (all at one turn),
    "all". ``end`` is the mean probability of ending after a turn, spread by history so that actions decide how long a
    trajectory lives.
    """

    def __init__(self, seed=0, actions=2, turns=3, end=0.4, share="none"):
        self.g = torch.Generator().manual_seed(seed)
        self.actions, self.turns, self.end, self.share = actions, turns, end, share
        self.states: dict[tuple, int] = {}
        histories: list[tuple[int, ...]] = [()]
        for _ in range(turns):
            for history in histories:
                self.states.setdefault(self._key(history), len(self.states))
            histories = [(*h, a) for h in histories for a in range(actions)]
        self.logits = torch.randn(len(self.states), actions, generator=self.g, dtype=torch.float64).requires_grad_()
        self._rewards: dict[tuple, float] = {}
        self._ends: dict[tuple, float] = {}
        self.outcomes = list(self._walk((), [], [], [], torch.ones((), dtype=torch.float64)))

    def _key(self, history):
        return {"none": history, "depth": (len(history),), "all": ()}[self.share]

    def _draw(self, table, history):
        if history not in table:
            table[history] = float(torch.rand((), generator=self.g, dtype=torch.float64))
        return table[history]

    def _walk(self, history, states, actions, rewards, probability):
        state = self.states[self._key(history)]
        policy = self.logits.log_softmax(-1)[state].exp()
        for action in range(self.actions):
            after = (*history, action)
            path = (after, [*states, state], [*actions, action], [*rewards, 2 * self._draw(self._rewards, after)])
            here = probability * policy[action]
            last = len(after) == self.turns
            ending = 1.0 if last else min(1.0, 2 * self.end * self._draw(self._ends, after))
            if ending > 0:
                yield Outcome(here * ending, *path[1:])
            if not last and ending < 1:
                yield from self._walk(*path, here * (1 - ending))

    @property
    def parameters(self):
        return self.logits.numel()

    def true_gradient(self):
        """d E[total reward] / d logits, flat, by autograd through the enumeration."""
        value = sum(o.probability * sum(o.rewards) for o in self.outcomes)
        return torch.autograd.grad(value, self.logits, retain_graph=True)[0].reshape(-1)

    def turn_gradients(self):
        """Share of the true gradient that flows through the actions of each turn: E[∇log π_t · G_t], [turns, P]."""
        scores, mask = self.scores(), self.mask()
        p, returns = self.probabilities(), self.returns()
        return torch.einsum("k,ktp,kt->tp", p, scores * mask[..., None], returns)

    def probabilities(self):
        return torch.stack([o.probability.detach() for o in self.outcomes])

    def mask(self):
        return torch.tensor([[t < len(o.actions) for t in range(self.turns)] for o in self.outcomes])

    def rewards(self):
        return torch.tensor(
            [[o.rewards[t] if t < len(o.rewards) else 0.0 for t in range(self.turns)] for o in self.outcomes],
            dtype=torch.float64,
        )

    def returns(self):
        return self.rewards().flip(1).cumsum(1).flip(1)

    def logprobs(self):
        table = self.logits.detach().log_softmax(-1)
        rows = [[table[s, a] for s, a in zip(o.states, o.actions, strict=True)] for o in self.outcomes]
        return torch.stack([torch.stack([*r, *[torch.zeros_like(r[0])] * (self.turns - len(r))]) for r in rows])

    def sum_pi_squared(self):
        square = self.logits.detach().softmax(-1).square().sum(-1)
        return torch.tensor(
            [[square[o.states[t]] if t < len(o.states) else 0.0 for t in range(self.turns)] for o in self.outcomes],
            dtype=torch.float64,
        )

    def scores(self):
        """∇ log π of each action of each outcome, [outcomes, turns, P]; 0 after the end."""
        policy = self.logits.detach().softmax(-1)
        out = torch.zeros(len(self.outcomes), self.turns, *self.logits.shape, dtype=torch.float64)
        for k, outcome in enumerate(self.outcomes):
            for t, (state, action) in enumerate(zip(outcome.states, outcome.actions, strict=True)):
                out[k, t, state] = -policy[state]
                out[k, t, state, action] += 1
        return out.flatten(2)

    def groups(self, n):
        """Every ordered group of n outcomes: members [groups, n] and their probabilities [groups]."""
        members = torch.cartesian_prod(*[torch.arange(len(self.outcomes))] * n).reshape(-1, n)
        return members, self.probabilities()[members].prod(dim=1)


def flat_groups(tree, n):
    """All groups of n as one flat batch of turns: returns, group ids, validity, task, trajectory, turn;
    [groups*n*turns]."""
    members, weights = tree.groups(n)
    groups, turns = members.shape[0], tree.turns
    returns = tree.returns()[members].reshape(-1)
    valid = tree.mask()[members].reshape(-1)
    task = torch.arange(groups).repeat_interleave(n * turns)
    trajectory = torch.arange(groups * n).repeat_interleave(turns)
    turn = torch.arange(turns).repeat(groups * n)
    return members, weights, returns, task * turns + turn, valid, task, trajectory, turn


def expected_by_turn(tree, members, weights, advantages):
    """E over groups of (1/N) Σ_i A_it ∇log π_it for each turn: [turns, P]. ``advantages`` is [groups*N*turns]."""
    shaped = advantages.reshape(*members.shape, tree.turns) * weights[:, None, None] / members.shape[1]
    # Sum by outcome first: the score of an outcome does not depend on its group.
    by_outcome = torch.zeros(len(tree.outcomes), tree.turns, dtype=torch.float64)
    by_outcome.index_add_(0, members.reshape(-1), shaped.reshape(-1, tree.turns))
    return torch.einsum("kt,ktp->tp", by_outcome, tree.scores())


def shrinkage(tree, n, alone):
    """Theory: the factor by which GRPO without deviation scales the gradient of each turn.

    The other n−1 trajectories reach turn t independently with probability p_t; with k of them there, A = k/(k+1) (G −
    their mean).
    """
    reach = (tree.probabilities()[:, None] * tree.mask()).sum(0).tolist()
    factors = []
    for p in reach:
        chances = [math.comb(n - 1, k) * p**k * (1 - p) ** (n - 1 - k) for k in range(n)]
        factor = sum(c * k / (k + 1) for k, c in enumerate(chances))
        factors.append(factor + (chances[0] if alone == "return" else 0.0))
    return torch.tensor(factors, dtype=torch.float64)


def prs_gradient(tree, keep, n, rejected="mask"):
    """E of TRLOO's gradient by turn, [turns, P], over all groups of n and all draws of PRS.

    ``keep`` [outcomes, turns] is the probability of each turn to stay. ``rejected`` "mask" takes a rejected turn out of
    the loss alone; "erase" also takes its reward out of returns and the turn out of its group.
    """
    members, weights = tree.groups(n)
    groups, turns = members.shape[0], tree.turns
    trajectory = torch.arange(groups * n).repeat_interleave(turns)
    turn = torch.arange(turns).repeat(groups * n)
    group = torch.arange(groups).repeat_interleave(n * turns) * turns + turn
    played, rewards = tree.mask()[members], tree.rewards()[members]
    total = torch.zeros(turns, tree.parameters, dtype=torch.float64)
    for pattern in itertools.product((True, False), repeat=n * turns):
        kept = torch.tensor(pattern).reshape(n, turns)
        chance = torch.where(kept, keep[members], 1 - keep[members]).prod(-1).prod(-1) * weights
        if not bool(chance.any()):
            continue
        valid = (played & kept if rejected == "erase" else played).reshape(-1)
        returns = adv.flat_turn_returns(rewards.reshape(-1), trajectory, turn, valid)
        advantages = adv.trloo(returns, group, valid).reshape(groups, n, turns) * kept
        total += expected_by_turn(tree, members, chance, advantages.reshape(-1))
    return total


def off_policy(tree, n, spread, settings):
    """Expected gradient when groups come from a disturbed copy of the policy and ``settings`` correct for it."""
    noise = spread * torch.randn(tree.logits.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    table = (tree.logits.detach() + noise).log_softmax(-1)
    train = tree.logprobs()
    rollout = torch.zeros_like(train)
    for k, outcome in enumerate(tree.outcomes):
        for t, (s, a) in enumerate(zip(outcome.states, outcome.actions, strict=True)):
            rollout[k, t] = table[s, a]
    found = mismatch(train, rollout, tree.mask(), settings)
    chance = tree.probabilities() * (rollout.sum(1) - train.sum(1)).exp()
    assert abs(float(chance.sum()) - 1) < 1e-12
    members = torch.cartesian_prod(*[torch.arange(len(tree.outcomes))] * n).reshape(-1, n)
    weights = chance[members].prod(1)
    turns = tree.turns
    group = torch.arange(members.shape[0]).repeat_interleave(n * turns) * turns + torch.arange(turns).repeat(
        members.numel()
    )
    # All graded rows make the baselines; what is rejected leaves the loss alone (its weight is 0).
    valid = tree.mask()[members].reshape(-1)
    advantages = adv.trloo(tree.returns()[members].reshape(-1), group, valid).reshape(*members.shape, turns)
    shaped = advantages * found.weights_BT[members] * weights[:, None, None] / n
    return torch.einsum("gnt,gntp->p", shaped, tree.scores()[members]), found
