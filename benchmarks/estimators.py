"""Every estimator in one table: bias and variance by full enumeration in float64, and what a prompt costs.

    python benchmarks/estimators.py            # prints the table; --out docs/results/estimators.csv writes it

Two problems of rl_tree.py: a tabular softmax policy over 2 actions with up to 3 turns (14 trajectories, ending
at different turns, by chance and by what was done) and with up to 2 turns (6 trajectories). Every group of 4
trajectories goes through the library's functions, weighted by its probability; nothing is sampled, so the figures have
no error bars.
"""

import statistics
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from surveys import markdown, parser_of, write_table

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests" / "kit"))

from drkernel.rl.maths import advantages as adv  # noqa: E402
from drkernel.rl.maths import otb  # noqa: E402
from rl_tree import Tree, flat_groups  # noqa: E402

SEEDS = range(5)
N = 4
PROBLEMS = {3: {"turns": 3, "end": 0.4}, 2: {"turns": 2, "end": 0.25}}


class Figures(NamedTuple):
    """Bias and variance of one estimator on one problem."""

    bias: float
    """‖E[ĝ] − g‖ / ‖g‖"""
    cosine: float
    """between E[ĝ] and g"""
    variance: float
    """trace of the covariance of one prompt's ĝ over ‖E[ĝ]‖²"""
    graded: float
    """graded turns a prompt, expected"""
    trained: float
    """turns a prompt in the loss, expected"""


def figures(gradients_DP: Tensor, chances_D: Tensor, exact_P: Tensor, graded: float, trained: float) -> Figures:
    """Of the gradient of every draw, and the chance of the draw."""
    mean_P = chances_D @ gradients_DP
    spread = float(chances_D @ (gradients_DP - mean_P).square().sum(1))
    return Figures(
        bias=float((mean_P - exact_P).norm() / exact_P.norm()),
        cosine=float(torch.nn.functional.cosine_similarity(mean_P, exact_P, dim=0)),
        variance=spread / float(mean_P.square().sum()),
        graded=graded,
        trained=trained,
    )


def methods(tree: Tree, n: int) -> dict[str, Callable[[], Tensor]]:
    """The advantages of every estimator, over groups of n trajectories."""
    members, _, returns, group, valid, task, trajectory, turn = flat_groups(tree, n)
    rewards = tree.rewards()[members].reshape(-1)
    totals = tree.returns()[members][..., :1].expand(-1, -1, tree.turns).reshape(-1)
    discounted = adv.flat_turn_returns(rewards, trajectory, turn, valid, gamma=0.4)
    batch = len(members), n * tree.turns

    def whole(baseline: str) -> Tensor:
        """One baseline for the prompt's whole batch: group by group."""
        groups = zip(returns.reshape(batch), valid.reshape(batch), strict=True)
        return torch.cat([adv.reinforce(r, v, baseline=baseline) for r, v in groups])  # type: ignore[arg-type]

    energy = otb.token_energy(tree.logprobs(), tree.sum_pi_squared())[members].flatten(0, 1)
    mask = tree.mask()[members].flatten(0, 1)
    rows = torch.arange(len(members)).repeat_interleave(n)

    def optimal(kind: otb.Energy, leave_one_out: bool) -> Tensor:
        weight = otb.realized_energy(energy, mask, kind=kind)
        values = tree.returns()[members].flatten(0, 1)
        return otb.otb(values, weight, rows, mask, leave_one_out=leave_one_out, epsilon=1e-12).reshape(-1)

    return {
        "TRLOO": lambda: adv.trloo(returns, group, valid),
        "RLOO": lambda: adv.rloo(returns, totals, task, trajectory, valid),
        "GRPO with std": lambda: adv.grpo_std(returns, group, valid),
        "GRPO": lambda: adv.grpo(returns, group, valid),
        "REINFORCE, no baseline": lambda: adv.reinforce(returns, valid, baseline="none"),
        "REINFORCE, mean of the prompt's turns": lambda: whole("mean"),
        "Kevin, γ = 0.4": lambda: adv.kevin(discounted, task, valid),
        "OTB, leave-one-out": lambda: optimal("cumulative", True),
        "OTB, leave-one-out, energy of the token": lambda: optimal("token", True),
        "OTB, own sample included (paper)": lambda: optimal("cumulative", False),
    }


def flat(tree: Tree) -> Iterator[tuple[str, Figures]]:
    """Estimators over groups of N trajectories."""
    members, weights, _, _, valid, *_ = flat_groups(tree, N)
    scores = tree.scores()
    chances = tree.probabilities()
    graded = N * float(chances @ tree.mask().double().sum(1))
    for name, advantage in methods(tree, N).items():
        shaped = advantage().reshape(*members.shape, tree.turns) * valid.reshape(*members.shape, tree.turns) / N
        gradients = torch.zeros(len(members), tree.parameters, dtype=torch.float64)
        for place in range(N):
            gradients += torch.einsum("gt,gtp->gp", shaped[:, place].double(), scores[members[:, place]])
        yield name, figures(gradients, weights, tree.true_gradient(), graded, graded)


def collect(turns: int) -> dict[str, list[Figures]]:
    """Every estimator on the problem of so many turns, by seed."""
    found: dict[str, list[Figures]] = {}
    for seed in SEEDS:
        tree = Tree(seed, **PROBLEMS[turns])
        for name, row in flat(tree):
            found.setdefault(name, []).append(row)
    return found


HEAD = ["problem", "estimator", "relative bias", "worst cosine", "relative variance", "graded turns", "of them trained",
        "variance × graded turns, TRLOO = 1"]  # fmt: skip


def table(problem: str, found: dict[str, list[Figures]]) -> list[list[str]]:
    """A row an estimator; the last column is relative to TRLOO's."""
    lines = []
    cost = [row.variance * row.graded for row in found["TRLOO"]]
    for name, rows in found.items():
        bias = [row.bias for row in rows]
        against = statistics.geometric_mean(
            [row.variance * row.graded / one for row, one in zip(rows, cost, strict=True)]
        )
        lines.append([
            problem,
            name,
            "< 1e-10" if max(bias) < 1e-10 else f"{statistics.mean(bias):.3g}",
            f"{min(row.cosine for row in rows):.4f}",
            f"{statistics.geometric_mean([row.variance for row in rows]):.3g}",
            f"{statistics.mean(row.graded for row in rows):.2f}",
            f"{statistics.mean(row.trained for row in rows):.2f}",
            f"{against:.2f}",
        ])  # fmt: skip
    return lines


def main() -> None:
    """Print the table, or write it."""
    parser = parser_of(__doc__)
    parser.add_argument("--out", type=Path, help="CSV file to write; default: print")
    out = parser.parse_args().out
    torch.set_num_threads(1)
    rows = [HEAD, *table("three turns, ragged endings", collect(3)), *table("two turns", collect(2))]
    print(write_table(out, rows) if out else "\n".join(markdown(rows)))


if __name__ == "__main__":
    main()
