"""Answers of hundreds of tokens: what rounding does to them, what MRS rejects, which learning rate an estimator bears.

    python benchmarks/long_answers.py mismatch --tokens 512     samplers in bf16, int8, with a broken worker; every rule
    python benchmarks/long_answers.py rates                     the largest learning rate that does not collapse
    python benchmarks/long_answers.py all --write docs/results  both, at 512 and 2,048 tokens, and the pictures

The policy is small and its rounding is real: the next token's logits are the embedding of (prompt, last token) times
an output matrix, and the sampler is a copy whose two matrices are rounded as quantised inference rounds them. Every
prompt has a token that is right after each token; a turn earns the share of right tokens, a conversation has two
turns. Fitted to be right half the time at first, policies train by TRLOO through ``give_credit`` and ``policy_loss``,
64 conversations a step, AdamW, gradients clipped at 1. All seeds train side by side; arms of a seed share its start,
prompts and random numbers. *Broken*: int8, and two of a group's eight conversations come from an int3 copy. *At
random* rejects as many turns as MRS does, but any. Quality is exact: the mean chance of the right token over all
prompts and tokens, in float32.

*Rates*: a run collapses when its quality ends below where it began, or a fifth below its best. The largest rate that
does not is bisected for each seed by itself (to 9%), on answers of 64 tokens.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib import pyplot as plt
from torch import Tensor

from drkernel.base.files import DiskCache
from drkernel.rl.maths.losses import clipped, policy_loss
from drkernel.rl.run.learner import LearnerConfig, give_credit
from drkernel.rl.run.registry import TurnBatch
from estimator_table import curve, interval, rules_digest
from surveys import markdown, parser_of, write_table

VOCABULARY, PROMPTS, WIDTH, TURNS = 16, 16, 16, 2
MRS = {"name": "mrs"}
RULES: dict[str, list[dict[str, Any]]] = {
    "none": [],
    "MRS, trajectory": [MRS],
    "MRS, turn": [{"name": "mrs", "options": {"mask": "turn_geometric"}}],
    "trust region": [{"name": "trust_region"}],
    "at random": [MRS],
}
SAMPLERS = {"float32": ["none"], **{name: list(RULES) for name in ("bf16", "int8", "broken")}}
RATES: dict[str, tuple[int, dict[str, Any]]] = {
    "mean, N = 4": (4, {"name": "grpo"}),
    "mean, N = 32": (32, {"name": "grpo"}),
    "TRLOO, N = 4": (4, {"name": "trloo"}),
    "OTB as published, N = 4": (4, {"name": "otb"}),
    "OTB, leave-one-out, N = 4": (4, {"name": "otb_loo"}),
    "OTB, uniform weights, N = 4": (4, {"name": "otb", "options": {"energy": "uniform"}}),
}


def rounded(x: Tensor, precision: str) -> Tensor:
    """``bf16``, or symmetric rounding to the bits of ``intN`` with one scale a seed; float32 as it is."""
    if precision == "float32":
        return x
    if precision == "bf16":
        return x.bfloat16().float()
    top = 2 ** (int(precision[3:]) - 1) - 1
    scale = x.abs().amax((1, 2), keepdim=True).clamp_min(1e-12) / top
    return (x / scale).round().clamp(-top, top) * scale


class Walkers:
    """Policies of S seeds: rows (prompt, last token) of logits over the next one."""

    def __init__(self, seeds: int):
        g = torch.Generator().manual_seed(0)
        size = PROMPTS * VOCABULARY
        self.right = torch.randint(VOCABULARY, (seeds, size), generator=g)
        parts = [torch.randn(seeds, size, WIDTH, generator=g), torch.randn(seeds, WIDTH, VOCABULARY, generator=g)]
        self.parameters = [(0.5 * part).requires_grad_() for part in parts]
        other = torch.rand(seeds, size, VOCABULARY, generator=g).log().neg().pow(3)
        wanted = 0.5 * other / other.sum(-1, keepdim=True)
        wanted.scatter_add_(2, self.right[..., None], torch.full((*self.right.shape, 1), 0.5))
        optimizer = torch.optim.Adam(self.parameters, lr=0.05)
        for _ in range(150):
            optimizer.zero_grad()
            (-(wanted * self.logprobs().reshape(wanted.shape)).sum(-1).mean() * seeds).backward()  # type: ignore[no-untyped-call]
            optimizer.step()

    def logprobs(self, precision: str = "float32") -> Tensor:
        """[seeds · rows, V]"""
        embed, head = (rounded(part, precision) for part in self.parameters)
        return (embed @ head).log_softmax(-1).flatten(0, 1)

    def quality(self) -> Tensor:
        """The mean chance of the right token, [seeds]."""
        chances = self.logprobs().detach().exp().gather(1, self.right.reshape(-1, 1))
        return chances.reshape(self.right.shape).mean(1)


@torch.no_grad()
def sample(tables: Tensor, row: Tensor, length: int, g: torch.Generator) -> tuple[Tensor, Tensor]:
    """Walk from ``row`` (the first of a prompt's rows in ``tables``): rows read and tokens drawn, [walks, length]."""
    cdf = tables.exp().cumsum(-1)
    last, rows, tokens = torch.zeros_like(row), [], []
    for _ in range(length):
        here = row + last
        chances = cdf[here]
        draw = torch.rand(len(row), 1, generator=g) * chances[:, -1:]
        last = torch.searchsorted(chances, draw, right=True)[:, 0].clamp_max(VOCABULARY - 1)
        rows.append(here)
        tokens.append(last)
    return torch.stack(rows, 1), torch.stack(tokens, 1)


def train(
    walkers: Walkers,
    sampler: str,
    rule: str,
    tokens: int,
    steps: int,
    rates: Tensor,
    group: int,
    groups: int,
    **learner: Any,
) -> dict[str, list[list[float]]]:
    """Train all seeds, each with its learning rate; figures by step and seed."""
    conversations = group * groups
    seeds, size = len(walkers.right), PROMPTS * VOCABULARY
    config = LearnerConfig.model_validate({"mismatch": RULES[rule], **learner})
    optimizer = torch.optim.AdamW(walkers.parameters, lr=1.0, weight_decay=0.0)
    seed_R = torch.arange(seeds).repeat_interleave(conversations)
    member_R = torch.arange(conversations).repeat(seeds)
    broken_R = (member_R % 8 < 2) & (sampler == "broken")
    log: dict[str, list[list[float]]] = {}

    def note(**values: Tensor) -> None:
        for name, value in values.items():
            log.setdefault(name, []).append(value.detach().tolist())

    for step in range(steps):
        note(quality=walkers.quality())
        g = torch.Generator().manual_seed(step)
        prompts = torch.rand(seeds, PROMPTS, generator=g).argsort(1)[:, :groups].reshape(-1)
        prompt_R = prompts.repeat_interleave(group)
        logprobs = walkers.logprobs()
        square = logprobs.detach().exp().square().sum(-1)
        with torch.no_grad():
            copies = [walkers.logprobs("int8" if sampler == "broken" else sampler)]
            tables = torch.cat(copies + [walkers.logprobs("int3")] * (sampler == "broken"))
        own_R = seed_R * size + prompt_R * VOCABULARY
        row_RL, token_RL = sample(tables, own_R + broken_R * seeds * size, TURNS * tokens, g)
        cell_BT = (row_RL % (seeds * size) * VOCABULARY + token_RL).reshape(-1, tokens)
        rollout_BT = tables[row_RL, token_RL].reshape(-1, tokens)
        row_BT = row_RL.reshape(-1, tokens) % (seeds * size)
        rewards = (token_RL.reshape(-1, tokens) == walkers.right.reshape(-1)[row_BT]).float().mean(1)
        now_BT = logprobs.reshape(-1)[cell_BT]
        owner_B = torch.arange(len(seed_R)).repeat_interleave(TURNS)
        task_B = torch.arange(len(seed_R)).div(group, rounding_mode="floor").repeat_interleave(TURNS)
        yes_BT = torch.ones_like(now_BT, dtype=torch.bool)
        rows = (rewards, task_B, owner_B, torch.arange(TURNS).repeat(len(seed_R)), yes_BT[:, 0])
        batch = TurnBatch(*rows, logprobs_BT=now_BT.detach(), sum_pi_squared_BT=square[row_BT], mask_BT=yes_BT)
        credit = give_credit(batch, rollout_BT, config, step)
        mask_BT = credit.mask_BT
        if rule == "at random":
            order = torch.rand(seeds, conversations * TURNS, generator=g).argsort(1)
            mask_BT = mask_BT[(order + torch.arange(seeds)[:, None] * conversations * TURNS).reshape(-1)]
        loss = policy_loss(now_BT, now_BT.detach(), credit.advantages_BT.float(), mask_BT, kind=clipped,
                           total=float(conversations * TURNS * tokens) / 100).loss  # fmt: skip
        optimizer.zero_grad()
        if bool(mask_BT.any()):
            loss.backward()  # type: ignore[no-untyped-call]
        grads = [torch.zeros_like(part) if part.grad is None else part.grad for part in walkers.parameters]
        norm = torch.stack([grad.flatten(1).square().sum(1) for grad in grads]).sum(0).sqrt()
        before = [part.detach().clone() for part in walkers.parameters]
        for part, grad in zip(walkers.parameters, grads, strict=True):
            part.grad = grad * (config.clip / norm.clamp_min(config.clip))[:, None, None]
        optimizer.step()
        with torch.no_grad():
            for part, old in zip(walkers.parameters, before, strict=True):
                part.copy_(old + rates[:, None, None] * (part - old))  # Adam's step is proportional to its rate
        kept_B = mask_BT.any(1)
        by_seed = (seeds, conversations * TURNS)
        sound_B = ~broken_R.repeat_interleave(TURNS)
        note(
            norm=norm,
            entropy=-(logprobs.detach().exp() * logprobs.detach()).sum(-1).reshape(seeds, -1).mean(1),
            perplexity=(-now_BT.detach().mean(1)).reshape(by_seed).mean(1).exp(),
            rejected=1 - kept_B.float().reshape(by_seed).mean(1),
            sound_rejected=((~kept_B & sound_B).float().reshape(by_seed).sum(1) / sound_B.reshape(by_seed).sum(1)),
            kept_reward=_mean(rewards, kept_B, by_seed),
            rejected_reward=_mean(rewards, ~kept_B, by_seed),
            k3=torch.full((seeds,), credit.metrics["mismatch/k3"]),
        )
    note(quality=walkers.quality())
    return log


def _mean(values: Tensor, use: Tensor, by_seed: tuple[int, int]) -> Tensor:
    use = use.reshape(by_seed).float()
    return (values.reshape(by_seed) * use).sum(1) / use.sum(1)


def remembered(kept: DiskCache, name: str, make: Callable[[], Any]) -> Any:
    """What was made under a name by today's mathematics, or is made now."""
    key = rules_digest(), name
    if (found := kept.get(*key)) is None:
        found = json.dumps(make()).encode()
        kept.put(found, *key)
        print(f"made {name}", file=sys.stderr, flush=True)
    return json.loads(found)


HEAD = ["tokens of a turn", "sampler", "rule", "KL (k3)", "turns rejected", "of the sound ones",
        "reward: rejected − kept", "gradient norm", "entropy", "perplexity", "quality", "against none",
        "visible"]  # fmt: skip


def mismatch_table(tokens: int, found: dict[tuple[str, str], dict[str, np.ndarray[Any, Any]]]) -> list[list[str]]:
    """The last fifth of the runs; quality against the same sampler without a rule."""
    lines = []
    for (sampler, rule), data in found.items():
        late = {name: values[-len(values) // 5 :].mean() for name, values in data.items()}
        final = 100 * data["quality"][-1]
        mean, low, high, least = interval(final - 100 * found[sampler, "none"]["quality"][-1])
        gap = np.nanmean(data["rejected_reward"] - data["kept_reward"]) if data["rejected"].any() else np.nan
        cells = [
            str(tokens),
            sampler,
            rule.replace(", ", " by "),
            f"{late['k3']:.1e}",
            f"{data['rejected'].mean():.0%}",
        ]
        cells += [f"{data['sound_rejected'].mean():.0%}", "" if np.isnan(gap) else f"{gap:+.3f}"]
        cells += [f"{late[name]:.2f}" for name in ("norm", "entropy", "perplexity")] + [f"{final.mean():.1f}"]
        cells += ["", ""] if rule == "none" else [f"{mean:+.1f} [{low:+.1f}, {high:+.1f}]", f"{least:.1f}"]
        lines.append(cells)
    return lines


def plot(path: Path, found: dict[tuple[str, str], dict[str, np.ndarray[Any, Any]]]) -> None:
    """Entropy, perplexity and gradient norm over steps, as the paper's Fig. 7; then quality."""
    shown, samplers = ("entropy", "perplexity", "norm", "quality"), [name for name in SAMPLERS if name != "float32"]
    figure, panels = plt.subplots(len(samplers), len(shown), figsize=(13, 2.7 * len(samplers)), sharex=True)
    for row, sampler in zip(panels, samplers, strict=True):
        for axes, name in zip(row, shown, strict=True):
            for rule in RULES:
                values = found[sampler, rule][name]
                curve(axes, range(len(values)), values, rule)
            axes.set(title=f"{sampler}: {name}", xlabel="RL step" * (sampler == samplers[-1]))
    panels[0][0].legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(path, dpi=70)
    plt.close(figure)


def largest(group: int, advantage: dict[str, Any], seeds: int, steps: int) -> list[float]:
    """The largest learning rate of each seed with which it does not collapse, by bisection of its logarithm."""
    low, high = torch.full((seeds,), 0.01).log(), torch.full((seeds,), 3.0).log()
    for _ in range(6):
        middle = (low + high) / 2
        log = train(Walkers(seeds), "float32", "none", 64, steps, middle.exp(), group, 64 // group, advantage=advantage)
        quality = torch.tensor(log["quality"])
        alive = (quality[-1] >= quality[0]) & (quality[-1] >= 0.8 * quality.max(0).values)
        low, high = torch.where(alive, middle, low), torch.where(alive, high, middle)
    return low.exp().tolist()


def rates_table(found: dict[str, np.ndarray[Any, Any]]) -> list[list[str]]:
    """The rates, and their ratios to the first's, paired by seed."""
    lines = [["estimator", "largest rate, geometric mean", "times that of the first", "visible"]]
    for name, logs in found.items():
        mean, low, high, least = np.exp(interval(logs - next(iter(found.values()))))
        lines.append([name, f"{np.exp(logs.mean()):.3f}", f"{mean:.2f} [{low:.2f}, {high:.2f}]", f"{least:.2f}"])
    return lines


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("part", choices=("mismatch", "rates", "all"))
    parser.add_argument("--tokens", type=int, action="append", help="of a turn; default 512 and 2048")
    parser.add_argument("--seeds", type=int, default=12)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--rate", type=float, default=0.02, help="learning rate of the first part")
    parser.add_argument("--out", type=Path, default=Path("runs/long_answers"))
    parser.add_argument("--write", type=Path, metavar="FOLDER", help="of pictures and tables")
    args = parser.parse_args()
    torch.set_num_threads(1)
    seeds, steps, rates = args.seeds, args.steps, torch.full((args.seeds,), args.rate)
    args.out.mkdir(parents=True, exist_ok=True)
    kept, rows = DiskCache(args.out), [HEAD]
    for tokens in (args.tokens or (512, 2048)) if args.part != "rates" else ():
        found = {}
        for sampler, rule in [(sampler, rule) for sampler, rules in SAMPLERS.items() for rule in rules]:
            run = partial(train, Walkers(seeds), sampler, rule, tokens, steps, rates, 8, 4)
            log = remembered(kept, f"mismatch {tokens} {seeds} {steps} {args.rate} {sampler}, {rule}", run)
            found[sampler, rule] = {key: np.array(values, dtype=float) for key, values in log.items()}
        rows += mismatch_table(tokens, found)
        if args.write:
            plot(args.write / f"long_answers_{tokens}.png", found)
    if args.part != "rates":
        print(*markdown(rows), sep="\n", flush=True)
        if args.write:
            write_table(args.write / "long_answers.csv", rows)
    if args.part != "mismatch":
        borne = {}
        for name, (group, advantage) in RATES.items():
            made = partial(largest, group, advantage, seeds, steps)
            borne[name] = np.log(remembered(kept, f"rates {seeds} {steps} {name}", made))
        print(*markdown(rates_table(borne)), sep="\n")
        if args.write:
            write_table(args.write / "long_answers_rates.csv", rates_table(borne))


if __name__ == "__main__":
    main()
