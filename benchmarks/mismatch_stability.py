"""Sample from a low-precision copy of a small transformer, train the float32 original: the mismatch, and what MRS does
about it.

    python benchmarks/mismatch_stability.py --out docs/results          # mismatch.csv and mismatch.png; 3 to 10 minutes
    python benchmarks/mismatch_stability.py --seeds 1 --steps 20        # a quick look, printed only

The task: a prompt (a, b), the answer a + b, a + 2b, ... modulo 17, twelve tokens; the reward is the share of right
tokens. A two-layer transformer learns noisy answers first, then trains by TRLOO and REINFORCE (128 answers a step,
Adam). The sampler is the same model with linear layers rounded: bf16, int8 or int4 (weights and activations, one scale
a tensor, as quantised inference rounds them), or *mixed*: int8, but two of the eight answers of a group come from an
int3 copy, as from a broken worker. The trainer's log-probabilities come from the float32 model at the same parameters,
so that the ratio shows rounding alone. MRS bounds are the recipe's for bf16 and wider for the coarser copies (see
RULES). "As many at random" is the control of MRS: in every step it rejects as many answers as MRS would, but any.
"""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path

import torch
from torch import Tensor, nn

from drkernel.rl.maths import advantages as adv
from drkernel.rl.maths.losses import policy_loss, reinforce
from drkernel.rl.maths.mismatch import OFF, MismatchSettings, mismatch
from page_tables import cells, write_table

VOCABULARY, PROMPT, ANSWER, WIDTH, HEADS, LAYERS = 17, 2, 12, 48, 4, 2
LEARNING_RATE, EVERY = 2e-3, 10
RULES = {
    ("fp32", "no correction"): OFF,
    ("bf16", "no correction"): OFF,
    ("bf16", "MRS 0.999 to 1.001"): MismatchSettings(),
    ("int8", "no correction"): OFF,
    ("int8", "MRS 0.99 to 1.01"): MismatchSettings(bounds=(0.99, 1.01)),
    ("mixed", "no correction"): OFF,
    ("mixed", "token weights, truncated at 2"): MismatchSettings(weight="token", mask=None, veto=None),
    ("mixed", "MRS 0.97 to 1.03"): MismatchSettings(bounds=(0.97, 1.03)),
    ("mixed", "as many at random"): MismatchSettings(bounds=(0.97, 1.03)),
    ("int4", "no correction"): OFF,
    ("int4", "MRS 0.95 to 1.05"): MismatchSettings(bounds=(0.95, 1.05)),
}
PRECISIONS = ("bf16", "int8", "mixed", "int4")


def quantise(x: Tensor, bits: int) -> Tensor:
    """Symmetric per-tensor rounding to ``bits`` bits."""
    top = 2 ** (bits - 1) - 1
    scale = x.abs().amax().clamp_min(1e-12) / top
    return (x / scale).round().clamp(-top, top) * scale


class Linear(nn.Linear):
    """A linear layer that can run as its low-precision copy."""

    copy: Tensor | None = None
    """The rounded weights while the layer runs as its copy."""
    bits: int = 0
    """Bits of activations and weights; 0 for bf16."""

    def become(self, precision: str) -> None:
        """Run as ``fp32`` (itself), ``bf16`` or ``intN`` from now on; the copy is taken of the weights as they are."""
        self.bits = int(precision[3:]) if precision.startswith("int") else 0
        weight = self.weight.detach()
        self.copy = None if precision == "fp32" else quantise(weight, self.bits) if self.bits else weight.bfloat16()

    def forward(self, x: Tensor) -> Tensor:
        """Apply in the precision set."""
        if self.copy is None:
            return super().forward(x)
        if self.bits:
            return nn.functional.linear(quantise(x, self.bits), self.copy)
        return nn.functional.linear(x.bfloat16(), self.copy).float()


class Block(nn.Module):
    """Attention and a MLP, pre-norm."""

    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList([nn.RMSNorm(WIDTH) for _ in range(2)])
        self.qkv, self.out = Linear(WIDTH, 3 * WIDTH, bias=False), Linear(WIDTH, WIDTH, bias=False)
        self.up, self.down = Linear(WIDTH, 4 * WIDTH, bias=False), Linear(4 * WIDTH, WIDTH, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """[B, T, WIDTH] -> the same."""
        b, t, _ = x.shape
        q, k, v = self.qkv(self.norms[0](x)).reshape(b, t, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, WIDTH))
        return x + self.down(nn.functional.gelu(self.up(self.norms[1](x))))


class Model(nn.Module):
    """A causal transformer over ``VOCABULARY`` tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, WIDTH)
        self.place = nn.Parameter(0.1 * torch.randn(PROMPT + ANSWER, WIDTH))
        self.blocks = nn.ModuleList([Block() for _ in range(LAYERS)])
        self.norm = nn.RMSNorm(WIDTH)
        self.head = Linear(WIDTH, VOCABULARY, bias=False)

    def precision(self, name: str) -> None:
        """Set the precision of every linear layer."""
        for module in self.modules():
            if isinstance(module, Linear):
                module.become(name)

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits [B, T, V]."""
        x = self.embed(tokens) + self.place[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def answers(prompt: Tensor) -> Tensor:
    """The right answer of a prompt (a, b): a + b, a + 2b, ... modulo the vocabulary."""
    steps = torch.arange(1, ANSWER + 1)
    return (prompt[:, :1] + steps * prompt[:, 1:]) % VOCABULARY


def pretrain(seed: int, steps: int) -> Model:
    """Supervised start on noisy answers: a policy that is right sometimes."""
    torch.manual_seed(seed)
    model = Model()
    optimiser = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for _ in range(steps):
        prompt = torch.randint(VOCABULARY, (128, PROMPT))
        target = answers(prompt)
        noisy = torch.where(torch.rand(target.shape) < 0.25, torch.randint(VOCABULARY, target.shape), target)
        tokens = torch.cat([prompt, noisy], dim=1)
        logits = model(tokens[:, :-1])[:, PROMPT - 1 :]
        loss = nn.functional.cross_entropy(logits.reshape(-1, VOCABULARY), noisy.reshape(-1))
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return model


@torch.no_grad()
def rollout(model: Model, prompt: Tensor, precision: str) -> tuple[Tensor, Tensor]:
    """Sampled tokens [B, PROMPT + ANSWER] and the sampler's log-probabilities [B, ANSWER]."""
    model.precision(precision)
    tokens, logprobs = prompt, []
    for _ in range(ANSWER):
        logp = model(tokens)[:, -1].log_softmax(-1)
        drawn = torch.multinomial(logp.exp(), 1)
        logprobs.append(logp.gather(1, drawn))
        tokens = torch.cat([tokens, drawn], dim=1)
    model.precision("fp32")
    return tokens, torch.cat(logprobs, dim=1)


def score(tokens: Tensor, prompt: Tensor) -> Tensor:
    """Share of right tokens of each answer, [B]."""
    return (tokens[:, PROMPT:] == answers(prompt)).float().mean(1)


def mixed_rollout(model: Model, prompt: Tensor, precision: str) -> tuple[Tensor, Tensor, Tensor]:
    """:func:`rollout`, and bool [B]: the answer comes from the broken copy (``mixed`` only)."""
    broken = (torch.arange(len(prompt)) % 8 < 2) & (precision == "mixed")
    tokens, logprobs = rollout(model, prompt, "int8" if precision == "mixed" else precision)
    if broken.any():
        tokens[broken], logprobs[broken] = rollout(model, prompt[broken], "int3")
    return tokens, logprobs, broken


def train(
    base: Model, seed: int, steps: int, precision: str, rule: MismatchSettings, at_random: bool
) -> list[dict[str, float]]:
    """RL from ``base``; one record a step: reward of the sampler, of the float32 policy (every 20 steps), mismatch,
    norm."""
    model = Model()
    model.load_state_dict(base.state_dict())
    torch.manual_seed(1000 + seed)
    optimiser = torch.optim.Adam(model.parameters(), lr=LEARNING_RATE)
    log: list[dict[str, float]] = []
    for step in range(steps):
        prompt = torch.randint(VOCABULARY, (16, PROMPT)).repeat_interleave(8, dim=0)
        group = torch.arange(16).repeat_interleave(8)
        tokens, sampled, broken = mixed_rollout(model, prompt, precision)
        reward = score(tokens, prompt)
        logits = model(tokens[:, :-1])[:, PROMPT - 1 :]
        logprobs = logits.log_softmax(-1).gather(-1, tokens[:, PROMPT:, None])[..., 0]
        found = mismatch(logprobs.detach(), sampled, torch.ones_like(sampled), rule)
        if at_random:
            order = torch.randperm(len(prompt))
            found = found._replace(keep_BT=found.keep_BT[order], weights_BT=found.weights_BT[order])
        # All answers make the baselines; what MRS rejects leaves the loss alone.
        advantage = adv.trloo(reward, group, torch.ones_like(reward))[:, None].expand_as(sampled)
        loss = policy_loss(
            logprobs,
            logprobs.detach(),
            advantage,
            found.keep_BT,
            kind=reinforce,
            total=float(len(prompt)),
            weights_BT=found.weights_BT,
        ).loss
        optimiser.zero_grad()
        loss.backward()
        norm = float(nn.utils.clip_grad_norm_(model.parameters(), 1.0))
        optimiser.step()
        record = {"reward": float(reward.mean()), "norm": norm, **found.metrics}
        lost = ~found.keep_BT.any(1)
        record["sound_lost"] = float(lost[~broken].float().mean())
        if broken.any():
            record["broken_lost"] = float(lost[broken].float().mean())
        if step % EVERY == EVERY - 1 or step == 0:
            record["own"] = float(score(rollout(model, prompt, "fp32")[0], prompt).mean())
        log.append(record)
    return log


Logs = dict[tuple[str, str], list[list[dict[str, float]]]]


def series(logs: list[list[dict[str, float]]], name: str) -> tuple[list[int], list[list[float]]]:
    """Steps at which ``name`` was recorded, and its values there for every seed."""
    steps = [i for i, record in enumerate(logs[0]) if name in record]
    return steps, [[log[i][name] for log in logs] for i in steps]


def plot(logs: Logs, path: Path) -> None:
    """Mismatch, gradient norm and the float32 policy's reward over steps; mean and range over seeds."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    shown = (("k3", "KL(sampler, trainer), nats a token"), ("norm", "gradient norm"), ("own", "reward, float32 policy"))
    figure, axes = plt.subplots(len(PRECISIONS), 3, figsize=(13, 3.3 * len(PRECISIONS)), sharex=True)
    for row, precision in enumerate(PRECISIONS):
        for column, (name, title) in enumerate(shown):
            axis = axes[row][column]
            arms = [key for key in logs if key[0] in (precision, "fp32")]
            for number, (which, rule) in enumerate(arms):
                if which == "fp32" and name == "k3":
                    continue
                runs, color = logs[which, rule], "0.5" if which == "fp32" else f"C{number - 1}"
                steps, values = series(runs, name)
                width = 1 if name == "own" else 10
                smooth = [
                    [statistics.mean(v[s] for v in values[max(0, i - width + 1) : i + 1]) for s in range(len(runs))]
                    for i in range(len(values))
                ]
                label = f"{which}: {rule}"
                axis.plot(
                    steps,
                    [statistics.mean(v) for v in smooth],
                    label=label,
                    color=color,
                    ls=":" if which == "fp32" else "-",
                )
                axis.fill_between(steps, [min(v) for v in smooth], [max(v) for v in smooth], alpha=0.15, color=color)
            axis.set_title(f"{precision} sampler: {title}", fontsize=9)
            axis.grid(alpha=0.3)
        axes[row][2].legend(fontsize=7)
    for axis in axes[-1]:
        axis.set_xlabel("step")
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def table(logs: Logs) -> str:
    """First and last tenth of the run: mean over steps, then mean (least to greatest) over seeds."""
    names = {"k3": "KL (k3)", "norm": "gradient norm", "own": "reward, float32"}
    lost = {"sound_lost": "sound answers rejected", "broken_lost": "broken answers rejected"}
    header = ["sampler", "correction", *[f"{text}, {when}" for text in names.values() for when in ("first", "last")]]
    header += ["worst dip of the reward", *lost.values()]
    lines = ["| " + " | ".join(header) + " |", "|---" * len(header) + "|"]

    def cell(seeds: list[float]) -> str:
        return f"{statistics.mean(seeds):.3g} ({min(seeds):.2g} to {max(seeds):.2g})"

    for (precision, rule), runs in logs.items():
        cells = [precision, rule]
        for name in names:
            _, values = series(runs, name)
            tenth = max(1, len(values) // 10)
            for part in (values[:tenth], values[-tenth:]):
                cells.append(cell([statistics.mean(v[s] for v in part) for s in range(len(runs))]))
        _, rewards = series(runs, "own")
        dips = []
        for seed in range(len(runs)):
            curve = [v[seed] for v in rewards]
            dips.append(max(max(curve[: i + 1]) - curve[i] for i in range(len(curve))))
        cells.append(cell(dips))
        for name in lost:
            _, values = series(runs, name)
            cells.append(f"{statistics.mean(statistics.mean(v) for v in values):.1%}" if values else "")
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    """Train all arms, print the table, write page and plot when asked to."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="folder of mismatch.csv and mismatch.png")
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--seeds", type=int, default=3)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    logs: Logs = {key: [] for key in RULES}
    for seed in range(arguments.seeds):
        start = time.perf_counter()
        base = pretrain(seed, 300)
        for (precision, name), rule in RULES.items():
            logs[precision, name].append(train(base, seed, arguments.steps, precision, rule, "random" in name))
            print(f"{time.perf_counter() - start:6.1f} s  seed {seed}, {precision}, {name}", flush=True)
    text = table(logs)
    print(text)
    if arguments.out:
        plot(logs, arguments.out / "mismatch.png")
        write_table(arguments.out / "mismatch.csv", cells(text.splitlines()))


if __name__ == "__main__":
    main()
