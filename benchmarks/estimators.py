"""Every estimator in one table: bias and variance by full enumeration in float64, and what a prompt costs.

    python benchmarks/estimators.py            # prints the table; --out docs/results/estimators.csv writes it
    python benchmarks/estimators.py --bias     # prints the tables of docs/results/bias.md

Two problems of rl_tree.py: a tabular softmax policy over 2 actions with up to 3 turns (14 trajectories, ending
at different turns, by chance and by what was done) and with up to 2 turns (6 trajectories). Every group of 4
trajectories goes through the library's functions, weighted by its probability; nothing is sampled, so the figures have
no error bars.
"""

import itertools
import statistics
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from surveys import markdown, parser_of, write_table

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests" / "kit"))

from drkernel.rl.maths import advantages as adv  # noqa: E402
from drkernel.rl.maths import otb  # noqa: E402
from drkernel.rl.maths.mismatch import MismatchSettings  # noqa: E402
from drkernel.rl.maths.rejection import keep_probability  # noqa: E402
from rl_tree import Tree, expected_by_turn, flat_groups, off_policy, prs_gradient, shrinkage  # noqa: E402

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


def gap_and_angle(pairs: Sequence[tuple[Tensor, Tensor]]) -> list[str]:
    """‖E[ĝ] − g‖/‖g‖, the mean over problems ("< 1e-10" where all are), and the worst cosine, of (E[ĝ], g)."""
    gaps = [float((got - true).norm() / true.norm()) for got, true in pairs]
    worst = min(float(torch.nn.functional.cosine_similarity(got, true, dim=0)) for got, true in pairs)
    return ["< 1e-10" if max(gaps) < 1e-10 else f"{statistics.mean(gaps):.3g}", f"{worst:.4f}"]


def expected(tree: Tree, n: int) -> dict[str, Tensor]:
    """The expected gradient by turn, [turns, P], of every method, and of TRLOO without lone rows."""
    members, weights, returns, group, valid, *_ = flat_groups(tree, n)
    found = {name: method() for name, method in methods(tree, n).items()}
    found["TRLOO, lone rows dropped"] = adv.trloo(returns, group, valid, alone="zero")
    return {name: expected_by_turn(tree, members, weights, value) for name, value in found.items()}


def bias_table() -> list[list[str]]:
    """Relative bias and worst cosine of every method at N = 2, 3, 4."""
    lines: dict[str, list[str]] = {}
    for n in (2, 3, 4):
        trees = [Tree(seed) for seed in SEEDS]
        found = [expected(tree, n) for tree in trees]
        for name in found[0]:
            pairs = [(one[name].sum(0), tree.true_gradient()) for one, tree in zip(found, trees, strict=True)]
            lines.setdefault(name, []).extend(gap_and_angle(pairs))
    head = [f"{what}, N = {n}" for n in (2, 3, 4) for what in ("relative bias", "worst cosine")]
    return [["method", *head], *[[name, *cells] for name, cells in lines.items()]]


def factor_table() -> list[list[str]]:
    """GRPO's factor of each turn's gradient: enumerated, and by theory with lone rows kept or dropped."""
    rows, tree = [["N", "", "turn 1", "turn 2", "turn 3"]], Tree(0)
    true = tree.turn_gradients()
    for n in (2, 3, 4):
        got = expected(tree, n)["GRPO"]
        factors = {"enumerated": (got * true).sum(1) / true.square().sum(1), "theory": shrinkage(tree, n, "return"),
                   "theory, lone rows dropped": shrinkage(tree, n, "zero")}  # fmt: skip
        rows += [[str(n), name, *[f"{v:.6f}" for v in values.tolist()]] for name, values in factors.items()]
    return rows


def rejection_table() -> list[list[str]]:
    """PRS turn by turn: the gradient it follows against the true one; only second turns can be rejected."""
    names = {"mask": "its place in the loss (released code)", "erase": "its reward and its place in the group as well"}
    turns = [f"{name} of turn {turn}" for turn in (1, 2) for name in ("relative bias", "worst cosine")]
    rows = [["what a rejected turn loses", "N", *turns]]
    for (rejected, what), n in itertools.product(names.items(), (2, 3)):
        pairs = []
        for seed in SEEDS:
            tree = Tree(seed, turns=2, end=0.2)
            lazy = keep_probability(torch.linspace(0.25, 0.45, len(tree.outcomes)))
            got = prs_gradient(tree, torch.stack([torch.ones_like(lazy), lazy], dim=1), n, rejected)
            pairs.append(list(zip(got, tree.turn_gradients(), strict=True)))
        rows.append([what, str(n), *[text for turn in range(2) for text in gap_and_angle([p[turn] for p in pairs])]])
    return rows


def correction_table() -> list[list[str]]:
    """MRS and importance weights where the sampler's logits are noisy; TRLOO, N = 2."""
    nothing: dict[str, Any] = {"mask": None, "veto": None}
    settings = {
        "nothing": MismatchSettings(**nothing),
        "sequence weights": MismatchSettings(weight="sequence", truncate=None, **nothing),
        "sequence weights truncated at 2": MismatchSettings(weight="sequence", **nothing),
        "token weights truncated at 2": MismatchSettings(weight="token", **nothing),
        "MRS, bounds 0.9 to 1.1": MismatchSettings(bounds=(0.9, 1.1)),
        "MRS, the recipe's bounds": MismatchSettings(),
    }
    rows = [["correction", "noise on the sampler's logits", "relative bias", "worst cosine", "outcomes rejected"]]
    for (name, rule), spread in itertools.product(settings.items(), (1.0, 0.1, 0.001)):
        found = [(tree := Tree(seed), *off_policy(tree, 2, spread, rule)) for seed in SEEDS]
        lost = statistics.mean(f.metrics["rejected_sequence_fraction"] for *_, f in found)
        pairs = [(got, tree.true_gradient()) for tree, got, _ in found]
        rows.append([name, f"{spread}", *gap_and_angle(pairs), f"{lost:.0%}"])
    return rows


def main() -> None:
    """Print the table, or write it."""
    parser = parser_of(__doc__)
    parser.add_argument("--out", type=Path, help="CSV file to write; default: print")
    parser.add_argument("--bias", action="store_true", help="the tables of bias alone, at several group sizes")
    arguments = parser.parse_args()
    out = arguments.out
    torch.set_num_threads(1)
    if arguments.bias:
        for made in (bias_table(), factor_table(), rejection_table(), correction_table()):
            print(*markdown(made), "", sep="\n")
        return
    rows = [HEAD, *table("three turns, ragged endings", collect(3)), *table("two turns", collect(2))]
    print(write_table(out, rows) if out else "\n".join(markdown(rows)))


if __name__ == "__main__":
    main()
