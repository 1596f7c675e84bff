"""FR3E by full enumeration in float64: what its states' gradients are, and what the published form makes of them."""

import itertools

import pytest
import torch

from contrib.fr3e.maths import fr3e
from rl_tree import Tree

torch.set_num_threads(1)
SAMPLES = 2


class Explored:
    """All draws of FR3E with one base rollout, one anchor and two rollouts a state, of a problem of two turns.

    A turn is a token; the anchor is the second one, where the base rollout has it (with two tokens there is no choice).
    """

    def __init__(self, seed):
        self.problem = tree = Tree(seed, turns=2, end=0.25)
        p, self.policy = tree.probabilities().tolist(), tree.logits.detach().softmax(-1)
        index = range(len(tree.outcomes))
        rows, chances, states = [], [], 0
        self.base = []
        for base in index:
            state = self.place(base)
            after = [k for k in index if state is not None and self.place(k) == state]
            given = {k: p[k] / sum(p[j] for j in after) for k in after}
            for first in itertools.product(index, repeat=SAMPLES):
                for second in itertools.product(after, repeat=SAMPLES) if after else [()]:
                    chance = p[base]
                    for k in first:
                        chance *= p[k]
                    for k in second:
                        chance *= given[k]
                    draw = len(chances)
                    chances.append(chance)
                    self.base.append(base)
                    for number, k in enumerate(first):
                        rows += [(draw, states, -1, number, turn, k) for turn in range(len(tree.outcomes[k].actions))]
                    for number, k in enumerate(second, SAMPLES):
                        rows.append((draw, states + 1, states, number, 1, k))
                    states += 2
        self.chances = torch.tensor(chances, dtype=torch.float64)
        draw, state, before, number, turn, outcome = (torch.tensor(column) for column in zip(*rows, strict=True))
        self.rows = {
            "state_B": state,
            "before_B": before,
            "task_B": draw,
            "trajectory_B": draw * 2 * SAMPLES + number,
            "turn_B": turn,
            "valid_B": torch.ones(len(rows), dtype=torch.bool),
        }
        self.draw, self.turn, self.outcome, self.own = draw, turn, outcome, before < 0
        self.returns = tree.returns()[outcome, turn]

    def place(self, outcome):
        """The state before the second token, None where there is none."""
        states = self.problem.outcomes[outcome].states
        return states[1] if len(states) > 1 else None

    def gradient(self, part, **options):
        """E of (1/M) Σ A ∇log π over the rows of ``part``, by turn: [turns, P]."""
        advantage = fr3e(self.returns, **self.rows, **options) * part * self.chances[self.draw] / SAMPLES
        tree = self.problem
        by_outcome = torch.zeros(len(tree.outcomes), tree.turns, dtype=torch.float64)
        by_outcome.index_put_((self.outcome, self.turn), advantage, accumulate=True)
        return torch.einsum("kt,ktp->tp", by_outcome, tree.scores())

    def of_values(self):
        """E over base rollouts of the gradient of the anchored state's value by what comes after it, [P]."""
        tree, p = self.problem, self.problem.probabilities()
        total = torch.zeros(tree.parameters, dtype=torch.float64)
        for base in range(len(tree.outcomes)):
            after = [
                k
                for k in range(len(tree.outcomes))
                if self.place(base) is not None and self.place(k) == self.place(base)
            ]
            mass = sum(p[k] for k in after)
            for k in after:
                total += p[base] * p[k] / mass * tree.scores()[k, 1] * tree.returns()[k, 1]
        return total


@pytest.fixture(scope="module", params=[0, 1])
def explored(request):
    return Explored(request.param)


def gap(got, exact):
    return float((got - exact).abs().max())


FAIR = {"modulation": "none", "leave_one_out": True}


def test_without_modulation_and_own_sample_every_state_has_its_exact_gradient(explored):
    assert float(explored.chances.sum()) == pytest.approx(1, abs=1e-12)
    own = explored.gradient(explored.own, **FAIR)
    assert gap(own, explored.problem.turn_gradients()) < 1e-10, "the task's own part is TRLOO"
    anchored = explored.gradient(~explored.own, **FAIR)
    assert gap(anchored[1], explored.of_values()) < 1e-10 and not anchored[0].any()


def test_with_the_own_sample_in_the_mean_a_state_keeps_all_but_one_part_in_m(explored):
    anchored = explored.gradient(~explored.own, modulation="none")
    assert gap(anchored[1], (1 - 1 / SAMPLES) * explored.of_values()) < 1e-10
    own = explored.gradient(explored.own, modulation="none")
    assert gap(own[0], (1 - 1 / SAMPLES) * explored.problem.turn_gradients()[0]) < 1e-10


def test_states_together_are_no_gradient_of_the_task(explored):
    """Later tokens at uncertain places weigh more: the sum leans, by what the chosen states add."""
    whole = explored.gradient(torch.ones_like(explored.own), **FAIR)
    exact = explored.problem.turn_gradients()
    assert gap(whole[0], exact[0]) < 1e-10
    assert gap(whole[1], exact[1] + explored.of_values()) < 1e-10 and gap(whole[1], exact[1]) > 1e-3


@pytest.mark.parametrize("modulation", ["code", "paper"])
def test_modulation_changes_weights_and_nothing_else(explored, modulation):
    plain = fr3e(explored.returns, **explored.rows, modulation="none")
    got = fr3e(explored.returns, **explored.rows, modulation=modulation)
    assert torch.equal(plain.sign(), got.sign()) and gap(plain, got) > 0.01
    anchored = explored.gradient(~explored.own, modulation=modulation)[1]
    assert gap(anchored, (1 - 1 / SAMPLES) * explored.of_values()) > 1e-3, "biased: a state's weight follows its draws"


def states(values, before, samples=4):
    """One turn a rollout, ``samples`` rollouts a state whose mean return is the value (0 or 1 each)."""
    rows = [(s, before[s], 1.0 if k < v * samples else 0.0) for s, v in enumerate(values) for k in range(samples)]
    state, previous, returns = (torch.tensor(column) for column in zip(*rows, strict=True))
    size = len(rows)
    zero = torch.zeros(size, dtype=torch.int64)
    return returns.double(), state, previous, zero, torch.arange(size), zero, torch.ones(size, dtype=torch.bool)


def test_the_modulation_is_that_of_code_and_paper():
    values = [0.25, 0.75, 0.5]
    rows = states(values, [-1, 0, 1])
    gains = torch.tensor([1 - 0.25, 0.5, -0.25]).double()
    power = gains.abs() ** 1.5
    expected = {
        "code": (-gains.sign() * power / power.sum()).exp(),
        "paper": torch.tensor([0.0, -0.5, 0.25]).double().exp(),
        "none": torch.ones(3).double(),
    }
    plain = fr3e(*rows, modulation="none")
    assert gap(plain[:4], torch.tensor([0.75, -0.25, -0.25, -0.25])) < 1e-12
    for modulation, scale in expected.items():
        assert gap(fr3e(*rows, modulation=modulation), plain * scale[rows[1]]) < 1e-12


def test_a_state_without_spread_is_dropped_and_the_next_is_compared_with_the_one_before_it():
    rows = states([0.25, 1.0, 0.5], [-1, 0, 1])
    got = fr3e(*rows, modulation="paper")
    assert not got[4:8].any()
    plain = fr3e(*rows, modulation="none")
    assert gap(got[8:], plain[8:] * float(torch.tensor(-(0.5 - 0.25)).double().exp())) < 1e-12


def test_rewards_that_are_not_binary_are_scaled():
    returns, *rest = states([0.25, 0.75], [-1, 0])
    got = fr3e(3 * returns - 1, *rest, modulation="paper")
    assert gap(got, 3 * fr3e(returns, *rest, modulation="paper")) < 1e-12
    other = fr3e(3 * returns - 1, *rest, modulation="paper", low=-1.0, high=5.0)
    plain = fr3e(3 * returns - 1, *rest, modulation="none")
    assert gap(other[4:], plain[4:] * float(torch.tensor(-0.25).double().exp())) < 1e-12
