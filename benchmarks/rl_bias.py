"""How far the expected gradient of each method lies from the true one, by full enumeration in float64.

    python benchmarks/rl_bias.py            # prints the tables; --out docs/results/bias.md writes the page

The problem (tests/kit/rl_tree.py): a tabular softmax policy over 2 actions, up to 3 turns, 14 trajectories that end at
different turns. Every ordered group of N trajectories goes through the library's functions, weighted by its
probability; nothing is sampled, so the figures have no error bars.
"""

from __future__ import annotations

import statistics
import sys
from pathlib import Path

import torch

from surveys import markdown, parser_of, write_table

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests" / "kit"))

from drkernel.rl.maths import advantages as adv  # noqa: E402
from drkernel.rl.maths.mismatch import MismatchSettings  # noqa: E402
from drkernel.rl.maths.rejection import keep_probability  # noqa: E402
from estimators import flat_methods  # noqa: E402
from rl_tree import Tree, expected_by_turn, flat_groups, off_policy, prs_gradient, shrinkage  # noqa: E402

SEEDS = range(5)
METHODS = (
    "TRLOO", "RLOO", "GRPO", "GRPO with std", "Kevin, γ = 0.4", "OTB, leave-one-out",
    "OTB, own sample included (paper)",
)  # fmt: skip
"""those of ``estimators.py`` that the table shows"""


def gap_and_angle(got: torch.Tensor, true: torch.Tensor) -> tuple[float, float]:
    """‖E[ĝ] − g‖/‖g‖ and the cosine between them."""
    cosine = torch.nn.functional.cosine_similarity(got, true, dim=0)
    return float((got - true).norm() / true.norm()), float(cosine)


def estimators(tree: Tree, n: int) -> dict[str, torch.Tensor]:
    """Expected gradient by turn, [turns, P], of each method."""
    members, weights, returns, group, valid, task, *_ = flat_groups(tree, n)
    methods = flat_methods(tree, n)
    found = {name: methods[name]() for name in METHODS}
    found["TRLOO, lone rows dropped"] = adv.trloo(returns, group, valid, alone="zero")
    found["REINFORCE, group mean over all turns"] = adv.kevin(returns, task, valid, std=False)
    return {name: expected_by_turn(tree, members, weights, value) for name, value in found.items()}


def cell(values: list[float], digits: int = 3) -> str:
    """Mean over problems; "< 1e-10" when all are."""
    if max(map(abs, values)) < 1e-10:
        return "< 1e-10"
    return f"{statistics.mean(values):.{digits}g}"


def main_table() -> str:
    """Relative bias and cosine of every estimator at N = 2, 3, 4, mean over problems."""
    columns: dict[str, list[str]] = {}
    for n in (2, 3, 4):
        collected: dict[str, list[tuple[float, float]]] = {}
        for seed in SEEDS:
            tree = Tree(seed)
            for name, got in estimators(tree, n).items():
                collected.setdefault(name, []).append(gap_and_angle(got.sum(0), tree.true_gradient()))
        for name, pairs in collected.items():
            columns.setdefault(name, []).extend([cell([p[0] for p in pairs]), f"{min(p[1] for p in pairs):.4f}"])
    header = ["method", *[f"{what}, N = {n}" for n in (2, 3, 4) for what in ("relative bias", "worst cosine")]]
    return "\n".join(markdown([header, *[[name, *values] for name, values in columns.items()]]))


def turn_table() -> str:
    """GRPO's factor per turn: enumerated and by theory."""
    rows = []
    for n in (2, 3, 4):
        tree = Tree(0)
        got, true = estimators(tree, n)["GRPO"], tree.turn_gradients()
        factor = (got * true).sum(1) / true.square().sum(1)
        theory = shrinkage(tree, n, "return")
        dropped = shrinkage(tree, n, "zero")
        for name, values in (("enumerated", factor), ("theory", theory), ("theory, lone rows dropped", dropped)):
            rows.append([str(n), name, *[f"{v:.6f}" for v in values.tolist()]])
    return "\n".join(markdown([["N", "", "turn 1", "turn 2", "turn 3"], *rows]))


def rejection_table() -> list[list[str]]:
    """PRS, MRS and importance weights, TRLOO underneath, N = 2."""
    nothing, rows = {"mask": None, "veto": None}, []
    settings = {
        "nothing": MismatchSettings(**nothing),
        "sequence weights": MismatchSettings(weight="sequence", truncate=None, **nothing),
        "sequence weights truncated at 2": MismatchSettings(weight="sequence", **nothing),
        "token weights truncated at 2": MismatchSettings(weight="token", **nothing),
        "MRS, bounds 0.9 to 1.1": MismatchSettings(bounds=(0.9, 1.1)),
        "MRS, the recipe's bounds": MismatchSettings(),
    }
    for name, rule in settings.items():
        for spread in (1.0, 0.1, 0.001):
            found = [(tree := Tree(seed), *off_policy(tree, 2, spread, rule)) for seed in SEEDS]
            gaps = [gap_and_angle(got, tree.true_gradient()) for tree, got, _ in found]
            lost = statistics.mean(f.metrics["rejected_sequence_fraction"] for *_, f in found)
            rows.append(
                [name, f"{spread}", cell([g[0] for g in gaps]), f"{min(g[1] for g in gaps):.4f}", f"{lost:.0%}"]
            )
    head = ["correction", "noise on the sampler's logits", "relative bias", "worst cosine", "outcomes rejected"]
    return [head, *rows]


def prs_table() -> str:
    """PRS alone, turn by turn: the gradient it follows against the true one; only second turns can be rejected."""
    names = {"mask": "its place in the loss (released code)", "erase": "its reward and its place in the group as well"}
    rows = []
    for rejected, what in names.items():
        for n in (2, 3):
            pairs = []
            for seed in SEEDS:
                tree = Tree(seed, turns=2, end=0.2)
                lazy = keep_probability(torch.linspace(0.25, 0.45, len(tree.outcomes)))
                got = prs_gradient(tree, torch.stack([torch.ones_like(lazy), lazy], dim=1), n, rejected)
                pairs.append([gap_and_angle(got[turn], tree.turn_gradients()[turn]) for turn in range(2)])
            cells = [
                text
                for t in range(2)
                for text in (cell([p[t][0] for p in pairs]), f"{min(p[t][1] for p in pairs):.4f}")
            ]
            rows.append([what, str(n), *cells])
    turns = [f"{name} of turn {turn}" for turn in (1, 2) for name in ("relative bias", "worst cosine")]
    return "\n".join(markdown([["what a rejected turn loses", "N", *turns], *rows]))


PAGE = """# Bias of the estimators, enumerated

Which estimators follow the true gradient? **TRLOO, RLOO and leave-one-out OTB are unbiased at every group size, with
ragged endings; the others are biased in direction too.**

`python benchmarks/rl_bias.py --out docs/results/bias.md`, without sampling: a tabular softmax policy with 2 actions
and up to 3 turns; its 14 trajectories end at different turns. *Relative bias* is ‖E[ĝ] − g‖/‖g‖, mean over {seeds}
random problems; the cosine is the worst of them. Groups of N are enumerated completely (14^4 = 38,416 groups at N =
4). Lone rows keep their return unless said otherwise.

{main}

## GRPO's factor differs from turn to turn

Without the standard deviation, GRPO scales the gradient of turn t by E[(n − 1)/n], n the size of the group *given
that the trajectory reached the turn*: n − 1 is binomial(N − 1, p_t) with the chance p_t to reach it. Lone rows that
keep their return have factor 1, dropped ones 0.

{turns}

## Rejection

PRS with TRLOO, two turns of two actions; second turns have coverages from 0.25 to 0.45. In the released code a
rejected turn leaves the loss's mask alone: the first turn's gradient is exact, the second's that of E[q (G − b)], q
the chance to stay (`test_enumeration_rejection.py`): a lazy but correct answer teaches nothing. Erasing the reward
credits the first turn with something else.

{prs}

Sampling from a policy with Gaussian noise on its logits, TRLOO, N = 2. Only the untruncated sequence weight is
unbiased at every noise. MRS does not repair a large mismatch; its bounds are meant for engines that differ by
rounding.

{rejections}
"""


def main() -> None:
    """Print the page, or write it."""
    parser = parser_of(__doc__)
    parser.add_argument("--out", type=Path, help="file to write; default: print")
    out = parser.parse_args().out
    torch.set_num_threads(1)
    rejections = rejection_table()
    sheet = (
        "\n".join(markdown(rejections)) if out is None else write_table(out.parent / "bias_corrections.csv", rejections)
    )
    page = PAGE.format(seeds=len(SEEDS), main=main_table(), turns=turn_table(), prs=prs_table(), rejections=sheet)
    if out is None:
        print(page)
    else:
        out.write_text(page)
        print(f"wrote {out}")


if __name__ == "__main__":
    main()
