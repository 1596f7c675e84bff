"""Variance of policy-gradient estimators as sequences grow, measured on exact gradients; makes a table and a plot.

    python benchmarks/otb_variance.py --out docs/results      # variance.csv, 3 minutes on one core
    python benchmarks/otb_variance.py --sequences 1024 --seeds 1    # a quick look

The policy is a bigram table: the logits of the next token are the row of the last one, 16 x 16 parameters, shared by
all positions, so that the gradient of every group is computed exactly (no proxy). A trajectory has four turns of equal
length; after each turn it ends with probability 0.15. A turn earns 1 or 0. Two problems:

- ``rambling``: row 0 opens the answer and chooses between 11 confident rows (one continuation has most of the mass) and
  4 uncertain ones; either kind is left about once in 250 tokens. A turn earns 1 when it is mostly confident. Samples of
  a group differ greatly in energy, and the energetic ones fail: the case the paper describes.
- ``even``: confident and uncertain rows alternate at random. A turn earns 1 when its count of token 0 is at least the
  policy's average. Samples of a group have nearly the same energy, and it says little about the return.

*Relative variance*: trace of the covariance of one group's gradient over the squared norm of its expectation (what
decides how many groups a step needs), the mean over all groups of all seeds, its own noise subtracted.
"""

import itertools
import statistics
import sys
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from drkernel.rl.maths import advantages as adv
from drkernel.rl.maths import otb
from surveys import markdown, parser_of, write_table

VOCABULARY, TURNS, END = 16, 4, 0.15
LENGTHS = (8, 16, 32, 64, 128, 256, 512)
GROUPS = (4, 32)
PROBLEMS = ("rambling", "even")
UNBIASED = ("RLOO", "TRLOO", "OTB (token, leave-one-out)", "OTB (cumulative, leave-one-out)")


class Samples(NamedTuple):
    """Sampled trajectories; S sequences, T tokens in all turns together, K turns."""

    last_ST: Tensor  # the token before each token: the row of the table
    token_ST: Tensor
    mask_ST: Tensor  # bool: before the end of the trajectory
    reward_SK: Tensor
    played_SK: Tensor  # bool


def policy(problem: str) -> Tensor:
    """Logits [V, V] of the named problem."""
    g = torch.Generator().manual_seed(7)
    logits = torch.randn(VOCABULARY, VOCABULARY, generator=g)
    confident, uncertain = slice(1, 12), slice(12, VOCABULARY)
    if problem == "even":
        logits[torch.arange(12), torch.randint(VOCABULARY, (12,), generator=g)] += 5.0
        return logits
    logits[1:] *= 0.3
    logits[torch.arange(1, 12), torch.randint(1, 12, (11,), generator=g)] += 4.0
    for inside, outside in ((confident, uncertain), (uncertain, confident)):
        # Leaving takes about one token in 250, whatever the mass inside is.
        gap = logits[inside, inside].logsumexp(1) - logits[inside, outside].logsumexp(1)
        logits[inside, outside] += (gap - 5.5)[:, None]
    logits[:, 0] = -8.0
    logits[0, uncertain] += logits[0, confident].logsumexp(0) - logits[0, uncertain].logsumexp(0)
    return logits


def sample(
    logits: Tensor, sequences: int, length: int, problem: str, seed: int, bar: float | None
) -> tuple[Samples, float]:
    """Draw trajectories and grade them; ``bar`` is the score that a turn must reach, the mean score when None."""
    g = torch.Generator().manual_seed(seed)
    probabilities = logits.softmax(-1)
    tokens = torch.zeros(sequences, length + 1, dtype=torch.int64)
    if problem == "even":
        tokens[:, 0] = torch.randint(VOCABULARY, (sequences,), generator=g)
    for j in range(length):
        tokens[:, j + 1] = torch.multinomial(probabilities[tokens[:, j]], 1, generator=g)[:, 0]
    last, token = tokens[:, :-1], tokens[:, 1:]
    good = (token < 12) if problem == "rambling" else (token == 0)
    score = good.float().reshape(sequences, TURNS, -1).mean(-1)
    if bar is None:
        bar = 0.5 if problem == "rambling" else float(score.mean())
    stays = torch.rand(sequences, TURNS - 1, generator=g) >= END
    played = torch.cat([torch.ones(sequences, 1, dtype=torch.bool), stays.cumprod(1).bool()], dim=1)
    mask = played.repeat_interleave(length // TURNS, dim=1)
    return Samples(last, token, mask, (score >= bar).float() * played, played), bar


def advantages(samples: Samples, logits: Tensor, n: int) -> dict[str, Tensor]:
    """Advantages per token, [S, T], of every method, groups being n consecutive sequences."""
    sequences, length = samples.token_ST.shape
    per_turn = length // TURNS
    trajectory = torch.arange(sequences).repeat_interleave(TURNS)
    turn = torch.arange(TURNS).repeat(sequences)
    task = trajectory // n
    valid = samples.played_SK.reshape(-1)
    returns = adv.turn_returns(samples.reward_SK, samples.played_SK).reshape(-1)
    totals = returns.reshape(-1, TURNS)[:, :1].expand(-1, TURNS).reshape(-1)
    group = adv.group_ids(task, turn)
    rows = {
        "GRPO with std": adv.grpo_std(returns, group, valid),
        "GRPO": adv.grpo(returns, group, valid),
        "RLOO": adv.rloo(returns, totals, task, trajectory, valid),
        "TRLOO": adv.trloo(returns, group, valid),
    }
    mask = samples.mask_ST.reshape(-1, per_turn)
    found = {name: (value[:, None] * mask).reshape(sequences, length) for name, value in rows.items()}
    logprobs = logits.log_softmax(-1)[samples.last_ST, samples.token_ST].reshape(-1, per_turn)
    square = logits.softmax(-1).square().sum(-1)[samples.last_ST].reshape(-1, per_turn)
    kinds: dict[str, tuple[otb.Energy, bool]] = {
        "OTB (cumulative, leave-one-out)": ("cumulative", True),
        "OTB (token, leave-one-out)": ("token", True),
        "OTB (paper, own sample included)": ("cumulative", False),
    }
    for name, (kind, left_out) in kinds.items():
        got = otb.otb_turns(returns, logprobs, square, mask, group, trajectory, turn, kind=kind, leave_one_out=left_out)
        found[name] = got.reshape(sequences, length)
    return found


def group_gradients(samples: Samples, logits: Tensor, advantage_ST: Tensor, n: int) -> Tensor:
    """Exact gradient (1/n) Σ_i Σ_j A_ij ∇log π(y_ij) of every group, float64 [groups, V * V]."""
    sequences = advantage_ST.shape[0]
    owner = (torch.arange(sequences) // n)[:, None]
    cell = ((owner * VOCABULARY + samples.last_ST) * VOCABULARY + samples.token_ST).reshape(-1)
    hits = torch.zeros(sequences // n * VOCABULARY**2, dtype=torch.float64)
    hits.index_add_(0, cell, advantage_ST.double().reshape(-1))
    hits = hits.reshape(-1, VOCABULARY, VOCABULARY) / n
    return (hits - hits.sum(-1, keepdim=True) * logits.double().softmax(-1)).reshape(sequences // n, -1)


def measure(length: int, problem: str, sequences: int, seeds: int) -> dict[tuple[int, str], list[float]]:
    """Relative variance of every group size and method, one figure a seed."""
    logits = policy(problem)
    bar = sample(logits, 4096, length, problem, 10_000, None)[1]
    gradients: dict[tuple[int, str], list[Tensor]] = {}
    for seed in range(seeds):
        samples = sample(logits, sequences, length, problem, seed, bar)[0]
        for n in GROUPS:
            for name, advantage in advantages(samples, logits, n).items():
                gradients.setdefault((n, name), []).append(group_gradients(samples, logits, advantage, n))

    def signal(key: tuple[int, str]) -> float:
        whole = torch.cat(gradients[key])
        return float(whole.mean(0).square().sum() - whole.var(0).sum() / len(whole))

    # Unbiased methods share one expectation: take it from the least noisy of them.
    common = signal((max(GROUPS), UNBIASED[-1]))
    return {
        key: [float(part.var(0).sum()) / (common if key[1] in UNBIASED else signal(key)) for part in parts]
        for key, parts in gradients.items()
    }


def tables(found: dict[tuple[str, int, int], dict[str, list[float]]]) -> list[list[str]]:
    """Mean over seeds for each reward, group size and method; the head first."""
    rows = [["problem", "N", "method", *map(str, LENGTHS)]]
    for problem in PROBLEMS:
        for n in GROUPS:
            for name in found[problem, n, LENGTHS[0]]:
                values = [statistics.mean(found[problem, n, length][name]) for length in LENGTHS]
                rows.append([problem, str(n), name, *[f"{value:.3g}" for value in values]])
    return rows


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--out", type=Path, help="folder of variance.csv")
    parser.add_argument("--sequences", type=int, default=8192, help="sequences per setting and seed")
    parser.add_argument("--seeds", type=int, default=3)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    found: dict[tuple[str, int, int], dict[str, list[float]]] = {}
    for problem, length in itertools.product(PROBLEMS, LENGTHS):
        for (n, name), values in measure(length, problem, arguments.sequences, arguments.seeds).items():
            found.setdefault((problem, n, length), {})[name] = values
        print(f"{problem}, {length} tokens", file=sys.stderr, flush=True)
    rows = tables(found)
    print(write_table(arguments.out / "variance.csv", rows) if arguments.out else "\n".join(markdown(rows)))


if __name__ == "__main__":
    main()
