"""Every tree that forking at turns can draw of a tiny problem (rl_tree.Tree), with its probability.

The sampler's own rule decides the forks (contrib.trees.forks), so the trees are as irregular as in a run: paths end
early, others take over their forks, and the last of them takes the rest.
"""

import itertools
from dataclasses import dataclass

import torch

from contrib.trees.forks import copies
from contrib.trees.maths import Forest


@dataclass(frozen=True)
class Node:
    """One drawn turn: row of its parent in the tree, state, action, reward, history after it, whether it ended."""

    parent: int
    state: int
    action: int
    reward: float
    history: tuple
    ended: bool


@dataclass(frozen=True)
class Drawn:
    """A tree under way: nodes, indices of active paths' last nodes (-1: the task), finished paths, probability."""

    nodes: tuple
    active: tuple
    finished: tuple
    chance: float


class Trees:
    """All trees of ``problem`` as one flat batch: one task a tree, rows are nodes."""

    def __init__(self, problem, config):
        self.problem = problem
        self.policy = problem.logits.detach().softmax(-1)
        first = config.first
        drawn = [Drawn((), (-1,) * first, (), 1.0)]
        done = []
        step = 1
        while drawn:
            grown = [after for tree in drawn for after in self._grow(tree, step, config)]
            done += [tree for tree in grown if not tree.active]
            drawn = [tree for tree in grown if tree.active]
            step += 1
        self._flatten(done)

    def _outcomes(self, history):
        """(state, action, reward, history after, ended, probability) of one more turn."""
        state = self.problem.states[self.problem._key(history)]
        for action in range(self.problem.actions):
            after = (*history, action)
            last = len(after) == self.problem.turns
            ending = 1.0 if last else min(1.0, 2 * self.problem.end * self.problem._ends[after])
            reward = 2 * self.problem._rewards[after]
            for ended, chance in ((True, ending), (False, 1 - ending)):
                if chance > 0:
                    yield state, action, reward, after, ended, float(self.policy[state, action]) * chance

    def _grow(self, tree, step, config):
        """The trees after one more step: every active path takes a turn, then what is active forks."""
        before = [tree.nodes[index].history if index >= 0 else () for index in tree.active]
        for drawn in itertools.product(*[list(self._outcomes(history)) for history in before]):
            nodes, on, off, chance = list(tree.nodes), [], list(tree.finished), tree.chance
            for parent, (state, action, reward, after, ended, p) in zip(tree.active, drawn, strict=True):
                (off if ended else on).append(len(nodes))
                nodes.append(Node(parent, state, action, reward, after, ended))
                chance *= p
            forks = copies(len(on), len(off), len(off) - len(tree.finished), step, config)
            active = tuple(index for index, times in zip(on, forks, strict=True) for _ in range(times))
            yield Drawn(tuple(nodes), active, tuple(off), chance)

    def _flatten(self, trees):
        rows = [(number, tree, node) for number, tree in enumerate(trees) for node in tree.nodes]
        starts = list(itertools.accumulate((len(tree.nodes) for tree in trees), initial=0))
        self.count = len(trees)
        self.leaves = [sum(1 for n in range(len(t.nodes)) if all(x.parent != n for x in t.nodes)) for t in trees]
        self.chances = torch.tensor([tree.chance for tree in trees], dtype=torch.float64)
        self.task = torch.tensor([number for number, _, _ in rows])
        self.chance = self.chances[self.task]
        self.rewards = torch.tensor([node.reward for _, _, node in rows], dtype=torch.float64)
        self.turn = torch.tensor([len(node.history) - 1 for _, _, node in rows])
        parents = [starts[number] + node.parent if node.parent >= 0 else -1 for number, _, node in rows]
        cells = [node.state * self.problem.actions + node.action for _, _, node in rows]
        self.parent, self.cell = torch.tensor(parents), torch.tensor(cells)
        self.states = self.cell // self.problem.actions
        self.valid = torch.ones(len(rows), dtype=torch.bool)

    def forest(self, valid=None):
        return Forest(self.parent, self.task, self.turn, self.valid if valid is None else valid)

    def by_turn(self, scales, chance=None):
        """E Σ_nodes scale · ∇log π for each turn, [turns, P]; scales [rows] hold weight times advantage."""
        scaled = scales * (self.chance if chance is None else chance)
        turns, states, actions = self.problem.turns, *self.problem.logits.shape
        hits = torch.zeros(turns * states * actions, dtype=torch.float64)
        hits.index_add_(0, self.turn * states * actions + self.cell, scaled)
        totals = torch.zeros(turns * states, dtype=torch.float64).index_add_(
            0, self.turn * states + self.states, scaled
        )
        found = hits.reshape(turns, states, actions) - totals.reshape(turns, states, 1) * self.policy
        return found.flatten(1)

    def gradients(self, scales):
        """Σ_nodes scale · ∇log π of each tree, [trees, P]."""
        states, actions = self.problem.logits.shape
        cell, state = self.task * states * actions + self.cell, self.task * states + self.states
        hits = torch.zeros(self.count * states * actions, dtype=torch.float64).index_add_(0, cell, scales)
        totals = torch.zeros(self.count * states, dtype=torch.float64).index_add_(0, state, scales)
        return (hits.reshape(self.count, states, actions) - totals.reshape(-1, states, 1) * self.policy).flatten(1)
