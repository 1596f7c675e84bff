"""Trees of turns: returns, weights and advantages where trajectories share their beginnings.

This file needs torch and nothing else; any training engine can take it as it is.

A *node* is what was sampled in one go: a turn, or a stretch of a turn's tokens between two forks. A node has a parent,
the node before it, and its children were drawn independently after it. Trajectories of the usual kind are trees too:
chains of only children, whose first nodes are siblings.

The estimator of the gradient weighs every node once: Σ_nodes w · A · ∇log π(node), w = 1/siblings for every node on the
way down (:func:`path_weights`). It is unbiased with the returns of :meth:`Forest.returns` and the baselines of
:func:`treepo_loo`, whatever the tree looks like, as long as how many children a node gets was decided before any of
them was drawn; how many may depend on everything that was drawn before. Proved by enumeration in
contrib/trees/tests/test_enumeration_trees.py.

Sources: the advantage over ancestors' subgroups is TreePO's (arXiv 2508.17445); the leave-one-out form is ours.

Shape legend: B nodes of the batch, K subgroups of a node: its task, then its ancestors from the first one down.
Rewards, returns and advantages are in the reward's own unit.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import torch
from torch import Tensor

from drkernel.rl.maths.advantages import Alone, floating

Subgroups = Literal["all", "nearest", "root"]
"""Which of a node's subgroups make its baseline: all of them with equal weight, the smallest one that holds others, or
all nodes of the task at its depth."""


@dataclass(frozen=True)
class Forest:
    """The trees of a batch. One tree a task; rows in any order."""

    parent_B: Tensor
    """row of the node before, -1 where there is none"""
    task_B: Tensor
    """integer id of the task"""
    turn_B: Tensor
    """index of the turn that the node belongs to: nodes of one turn have no discount between them"""
    valid_B: Tensor
    """bool: the node has a grade, or is part of a turn that has one"""

    def __post_init__(self) -> None:
        """Raise ValueError for parents that are not rows, belong to another task, or form a cycle."""
        parent_B, size = self.parent_B, self.parent_B.numel()
        if len({tuple(part.shape) for part in (parent_B, self.task_B, self.turn_B, self.valid_B)}) != 1:
            raise ValueError("parent, task, turn and valid must all be [B]")
        if size and not (int(parent_B.min()) >= -1 and int(parent_B.max()) < size):
            raise ValueError("a parent is a row of the batch, or -1")
        inner_B = parent_B >= 0
        if not torch.equal(self.task_B[parent_B[inner_B]], self.task_B[inner_B]):
            raise ValueError("a node and its parent must belong to the same task")
        if sum(level.numel() for level in self.levels) != size:
            raise ValueError("parents run in a circle")

    @cached_property
    def levels(self) -> tuple[Tensor, ...]:
        """Rows by depth: first nodes, their children, and so on."""
        found = [(self.parent_B < 0).nonzero()[:, 0]]
        while found[-1].numel():
            found.append(torch.isin(self.parent_B, found[-1]).nonzero()[:, 0])
        return tuple(found[:-1])

    @cached_property
    def live_B(self) -> Tensor:
        """bool: valid, or with a valid node below. The others count as if they had not been drawn."""
        live_B = self.valid_B.bool().clone()
        for level in reversed(self.levels[1:]):
            live_B[self.parent_B[level[live_B[level]]]] = True
        return live_B

    @cached_property
    def whole_B(self) -> Tensor:
        """bool: on a path from a first node to a last one whose nodes are all valid.

        In a chain the valid nodes if it has no other. A node whose every continuation failed is not: its return would
        miss what the failure hid.
        """
        below_B = torch.bincount(self.parent_B[self.parent_B >= 0], minlength=self.parent_B.numel()) == 0
        for level in reversed(self.levels):
            rows = level[self.valid_B[level].bool() & below_B[level]]
            below_B[self.parent_B[rows[self.parent_B[rows] >= 0]]] = True
        whole_B = self.valid_B.bool() & below_B
        for level in self.levels[1:]:
            whole_B[level] &= whole_B[self.parent_B[level]]
        return whole_B

    @cached_property
    def children_B(self) -> Tensor:
        """Live children of each node, int64."""
        rows = (self.live_B & (self.parent_B >= 0)).nonzero()[:, 0]
        return torch.bincount(self.parent_B[rows], minlength=self.parent_B.numel())

    @cached_property
    def root_B(self) -> Tensor:
        """Compact index of the task, int64."""
        index_B: Tensor = torch.unique(self.task_B, return_inverse=True)[1]
        return index_B

    @cached_property
    def subgroups_BK(self) -> Tensor:
        """Ids of the subgroups of each node, int64, -1 beyond: of its task, then of its ancestors from the first one
        down to its parent."""
        size = self.parent_B.numel()
        ids_BK = torch.full((size, max(1, len(self.levels))), -1, dtype=torch.int64, device=self.parent_B.device)
        ids_BK[:, 0] = size + self.root_B
        for depth, level in enumerate(self.levels[1:], 1):
            parent = self.parent_B[level]
            ids_BK[level, :depth] = ids_BK[parent, :depth]
            ids_BK[level, depth] = parent
        return ids_BK

    @cached_property
    def depth_B(self) -> Tensor:
        """Nodes above each node, int64."""
        return (self.subgroups_BK >= 0).sum(dim=1) - 1

    def returns(self, rewards_B: Tensor, gamma: float = 1.0) -> Tensor:
        """Reward-to-go of each node, [B]: its reward plus γ times the mean over its live children of theirs.

        γ counts turns: between two nodes of one turn nothing is discounted. An invalid node has no reward of its own.
        Its own return, and that of nodes that are not live, is 0.
        """
        rewards_B = floating(rewards_B)
        totals_B = torch.where(self.valid_B.bool(), rewards_B, torch.zeros_like(rewards_B)).double()
        for level in reversed(self.levels[1:]):
            rows = level[self.live_B[level]]
            parent = self.parent_B[rows]
            discount = gamma ** (self.turn_B[rows] - self.turn_B[parent]).double()
            totals_B.index_add_(0, parent, discount * totals_B[rows] / self.children_B[parent])
        return torch.where(self.valid_B.bool(), totals_B, torch.zeros_like(totals_B)).to(rewards_B.dtype)


def path_weights(forest: Forest) -> Tensor:
    """Return the probability of each node on a walk from the task that takes every live child with equal probability,
    float64 [B].

    The weights of a task's nodes at one depth add up to the share of walks that reach that depth. 0 for nodes that are
    not live.
    """
    weights_B = torch.zeros(forest.parent_B.numel(), dtype=torch.float64, device=forest.parent_B.device)
    for depth, level in enumerate(forest.levels):
        rows = level[forest.live_B[level]]
        if depth == 0:
            count = torch.bincount(forest.root_B[rows], minlength=int(forest.root_B.max()) + 1)
            weights_B[rows] = 1.0 / count[forest.root_B[rows]].double()
        else:
            parent = forest.parent_B[rows]
            weights_B[rows] = weights_B[parent] / forest.children_B[parent]
    return weights_B


def leaf_counts(forest: Forest) -> Tensor:
    """Return the paths through each node: the live nodes without live children at or below it, int64 [B]."""
    counts_B = (forest.live_B & (forest.children_B == 0)).long()
    for level in reversed(forest.levels[1:]):
        counts_B.index_add_(0, forest.parent_B[level], counts_B[level])
    return counts_B


def leaf_weights(forest: Forest) -> Tensor:
    """Share of the task's paths that run through each node, float64 [B]: how much a shared node weighs where every path
    is trained as a trajectory of its own (TreePO). Biased where paths that fare differently are forked differently."""
    counts_B = leaf_counts(forest).double()
    first_B = forest.parent_B < 0
    total_T = counts_B.new_zeros(int(forest.root_B.max()) + 1 if counts_B.numel() else 0)
    total_T.index_add_(0, forest.root_B[first_B], counts_B[first_B])
    return counts_B / total_T[forest.root_B].clamp_min(1)


def treepo_loo(returns_B: Tensor, forest: Forest, *, subgroups: Subgroups = "all", alone: Alone = "return") -> Tensor:
    """Tree advantages with leave-one-out baselines, [B]; ``returns_B`` are :meth:`Forest.returns`.

    A subgroup of a node holds the valid nodes of its depth below one of its ancestors, or below the task. The baseline
    is the mean return of the *other* members, averaged over the subgroups that hold any (``"all"``), of the nearest
    such one alone (``"nearest"``: siblings under one parent, where there are any), or of the task's (``"root"``: equals
    TRLOO on trajectories that share nothing). All three are unbiased with :func:`path_weights`. A node without others
    keeps its return (``alone="return"``) or gets 0 (``"zero"``, biased).
    """
    if subgroups not in ("all", "nearest", "root"):
        raise ValueError(f"unknown subgroups {subgroups!r}; choose all, nearest or root")
    if alone not in ("return", "zero"):
        raise ValueError(f"unknown rule for a node without others {alone!r}; choose return or zero")
    valid_B = forest.valid_B.bool()
    values_B = torch.where(valid_B, returns_B, torch.zeros_like(returns_B)).double()
    if not torch.isfinite(values_B).all():
        raise ValueError("a valid node has a NaN or infinite return; mask it (valid=False) or fix its reward")
    sums_B, counts_B = torch.zeros_like(values_B), torch.zeros_like(values_B)
    width = forest.subgroups_BK.shape[1]
    for k in reversed(range(width if subgroups != "root" else 1)):
        ids_B, has_B = forest.subgroups_BK[:, k], forest.subgroups_BK[:, k] >= 0
        # members of one subgroup have one depth: the node's own
        group_B = torch.unique(ids_B * (width + 1) + forest.depth_B, return_inverse=True)[1]
        total_B, members_B = _sums(values_B, group_B), _sums(valid_B.double(), group_B)
        wanted_B = has_B & valid_B & (members_B > 1)
        if subgroups == "nearest":
            wanted_B &= counts_B == 0
        others_B = (total_B - values_B) / (members_B - 1).clamp_min(1)
        sums_B += torch.where(wanted_B, others_B, torch.zeros_like(others_B))
        counts_B += wanted_B
    found_B = values_B - sums_B / counts_B.clamp_min(1)
    lone_B = values_B if alone == "return" else torch.zeros_like(values_B)
    found_B = torch.where(counts_B > 0, found_B, lone_B)
    return torch.where(valid_B, found_B, torch.zeros_like(found_B)).to(floating(returns_B).dtype)


def treepo(
    rewards_B: Tensor, forest: Forest, *, gamma: float = 1.0, std: bool = False, epsilon: float = 1e-6
) -> Tensor:
    """TreePO's advantage, [B], as its code has it: of the paths through a node the mean of Â.

    A path's R is its whole (discounted) reward. Â = mean over k of R − mean(R of the paths that share the first k
    nodes); k = 0 (the whole task) always counts, k > 0 where more than one path does. ``std`` divides by the sample
    deviation of the task's R. Meant for :func:`leaf_weights`: together they are the gradient of a loss in which every
    path is a trajectory of its own.

    Biased: a mean over paths that share a node says nothing about that node, so its expected gradient is shrunk, more
    the earlier it is. In a tree with b children everywhere and D nodes a path, a node at depth d (from 1) keeps
    (1/D) Σ_{k<d} (1 − b^(k−d)) of its gradient.
    """
    valid_B = forest.valid_B.bool()
    earned_B = torch.where(valid_B, floating(rewards_B), torch.zeros_like(floating(rewards_B))).double()
    earned_B = earned_B * gamma ** forest.turn_B.double()
    total_B = earned_B.clone()  # along the path from the task down to and with the node
    for level in forest.levels[1:]:
        total_B[level] += total_B[forest.parent_B[level]]
    leaves = (forest.live_B & (forest.children_B == 0)).nonzero()[:, 0]
    reward_L = total_B[leaves]
    sums_L, counts_L = torch.zeros_like(reward_L), torch.zeros_like(reward_L)
    for k in range(forest.subgroups_BK.shape[1]):
        ids_L = forest.subgroups_BK[leaves, k]
        group_L = torch.unique(ids_L, return_inverse=True)[1]
        members_L = _sums(torch.ones_like(reward_L), group_L)
        counted_L = (ids_L >= 0) & ((members_L > 1) | (k == 0))
        sums_L += torch.where(counted_L, reward_L - _sums(reward_L, group_L) / members_L, torch.zeros_like(reward_L))
        counts_L += counted_L
    found_L = sums_L / counts_L.clamp_min(1)
    if std:
        root_L = forest.root_B[leaves]
        members_L = _sums(torch.ones_like(reward_L), root_L)
        centred_L = reward_L - _sums(reward_L, root_L) / members_L
        found_L = found_L / ((_sums(centred_L.square(), root_L) / (members_L - 1).clamp_min(1)).sqrt() + epsilon)
    below_B = torch.zeros_like(earned_B)
    below_B[leaves] = found_L
    for level in reversed(forest.levels[1:]):
        below_B.index_add_(0, forest.parent_B[level], below_B[level])
    mean_B = below_B / leaf_counts(forest).clamp_min(1)
    return torch.where(valid_B, mean_B, torch.zeros_like(mean_B)).to(floating(rewards_B).dtype)


def mean_one(weights_B: Tensor, counted_B: Tensor) -> Tensor:
    """Weights scaled to a mean of 1 over the rows that count, so that a learning rate means the same with trees and
    without; 0 elsewhere."""
    kept_B = torch.where(counted_B.bool(), weights_B, torch.zeros_like(weights_B))
    return kept_B * counted_B.sum().clamp_min(1) / kept_B.sum().clamp_min(torch.finfo(kept_B.dtype).tiny)


def _sums(values_B: Tensor, group_B: Tensor) -> Tensor:
    """Return, for each row, the sum over its group."""
    groups = int(group_B.max()) + 1 if group_B.numel() else 0
    return values_B.new_zeros(groups).index_add_(0, group_B, values_B)[group_B]
