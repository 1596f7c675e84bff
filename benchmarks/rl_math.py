"""Speed and memory of the RL mathematics, beside the loop-per-sample style of published trainers, in one run.

    python benchmarks/rl_math.py                 # everything, about a minute on one core
    python benchmarks/rl_math.py --turns 768 --tokens 1024

Advantages: 3,072 turns (64 tasks x 16 samples x 3 turns) x 8,192 tokens. The loop is written here in the style common
in trainers: rows are put into a dict by group, then visited one at a time. Both sides run in this process on one
thread, alternating; figures are medians of CPU time (which a busy machine disturbs less than wall time), with the
smallest and largest ratio of the pairs.

Memory: peak resident memory of log-probability plus Σπ² at vocabulary 151,936, in a fresh process for each way, over
the inputs that exist before the call. "Chunk" is one chunk of float32 logits. glibc is told to give freed blocks back
at once (MALLOC_MMAP_THRESHOLD_), so that the peak is what was alive and not what the allocator kept.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable

import torch
from torch import Tensor

from drkernel.rl.maths import advantages as adv
from drkernel.rl.maths import otb
from drkernel.rl.maths.logprobs import linear_token_statistics, token_statistics

VOCABULARY = 151_936


def loop_trloo(returns: Tensor, task: Tensor, turn: Tensor, valid: Tensor) -> Tensor:
    """Leave-one-out by visiting rows."""
    groups: dict[tuple[int, int], list[Tensor]] = defaultdict(list)
    for i in range(len(returns)):
        if valid[i]:
            groups[task[i].item(), turn[i].item()].append(returns[i])
    means = {key: torch.stack(values).mean() for key, values in groups.items()}
    out = torch.zeros_like(returns)
    for i in range(len(returns)):
        if valid[i]:
            key = (task[i].item(), turn[i].item())
            n = len(groups[key])
            out[i] = (returns[i] - means[key]) * n / (n - 1) if n > 1 else returns[i]
    return out


def loop_grpo_std(returns: Tensor, task: Tensor, turn: Tensor, valid: Tensor) -> Tensor:
    """Mean and deviation by visiting rows."""
    groups: dict[tuple[int, int], list[Tensor]] = defaultdict(list)
    for i in range(len(returns)):
        if valid[i]:
            groups[task[i].item(), turn[i].item()].append(returns[i])
    stats = {}
    for key, values in groups.items():
        stacked = torch.stack(values)
        stats[key] = (stacked.mean(), stacked.std()) if len(values) > 1 else (torch.tensor(0.0), torch.tensor(1.0))
    out = torch.zeros_like(returns)
    for i in range(len(returns)):
        if valid[i]:
            mean, std = stats[task[i].item(), turn[i].item()]
            out[i] = (returns[i] - mean) / (std + 1e-6)
    return out


def loop_otb(returns_BT: Tensor, weights_BT: Tensor, group: Tensor, mask_BT: Tensor) -> Tensor:
    """The paper's baseline, group by group (the published form: own sample included)."""
    members: dict[int, list[int]] = defaultdict(list)
    for i in range(len(group)):
        members[group[i].item()].append(i)
    out = torch.zeros_like(returns_BT)
    for rows in members.values():
        index = torch.tensor(rows)
        weight, value = weights_BT[index] * mask_BT[index], returns_BT[index]
        out[index] = (value - (value * weight).sum(0) / (weight.sum(0) + 1e-8)) * mask_BT[index]
    return out


def loop_otb_left_out(returns_BT: Tensor, weights_BT: Tensor, group: Tensor, mask_BT: Tensor) -> Tensor:
    """Our formula, sample by sample: every row against the weighted mean of the others."""
    members: dict[int, list[int]] = defaultdict(list)
    for i in range(len(group)):
        members[group[i].item()].append(i)
    out = torch.zeros_like(returns_BT)
    for rows in members.values():
        for i in rows:
            others = torch.tensor([k for k in rows if k != i])
            weight = weights_BT[others] * mask_BT[others]
            out[i] = (returns_BT[i] - (returns_BT[others] * weight).sum(0) / (weight.sum(0) + 1e-8)) * mask_BT[i]
    return out


def alternate(ours: Callable[[], object], theirs: Callable[[], object], pairs: int) -> tuple[float, float, list[float]]:
    """Median CPU seconds of either side and the ratio of every pair, after one warm-up each."""
    ours(), theirs()
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(pairs):
        for function, bucket in ((ours, times[0]), (theirs, times[1])):
            start = time.process_time()
            function()
            bucket.append(time.process_time() - start)
    ratios = [b / a for a, b in zip(*times, strict=True)]
    return statistics.median(times[0]), statistics.median(times[1]), ratios


def show(name: str, result: tuple[float, float, list[float]]) -> None:
    """One line of the table."""
    ours, theirs, ratios = result
    median = statistics.median(ratios)
    spread = f"({min(ratios):.1f} to {max(ratios):.1f})"
    print(f"{name:50s} {1e3 * ours:10.2f} ms {1e3 * theirs:10.2f} ms  {median:7.1f}x  {spread}")


def speed(turns: int, tokens: int) -> None:
    """Advantages per turn, spread over tokens, and OTB."""
    g = torch.Generator().manual_seed(0)
    tasks, samples = max(1, turns // 48), 16
    turn = torch.arange(3).repeat(tasks * samples)
    task = torch.arange(tasks).repeat_interleave(samples * 3)
    rows = len(task)
    returns, valid = torch.randn(rows, generator=g), torch.rand(rows, generator=g) < 0.95
    length = torch.randint(tokens // 4, tokens + 1, (rows,), generator=g)
    mask = torch.arange(tokens) < length[:, None]
    group = adv.group_ids(task, turn)
    print(f"{rows} turns x {tokens} tokens, {torch.get_num_threads()} thread(s), torch {torch.__version__}")
    print(f"{'':50s} {'drkernel':>13s} {'loop':>13s}  {'ratio':>8s}")

    def ours(function: Callable[..., Tensor]) -> Callable[[], Tensor]:
        return lambda: function(returns, adv.group_ids(task, turn), valid)

    pairs = (("TRLOO", adv.trloo, loop_trloo), ("GRPO with std", adv.grpo_std, loop_grpo_std))
    for name, function, loop in pairs:
        a, b = ours(function)(), loop(returns, task, turn, valid)
        assert torch.allclose(a, b, atol=1e-4), f"{name}: the two sides disagree"
        show(
            f"{name}, one advantage a turn", alternate(ours(function), lambda f=loop: f(returns, task, turn, valid), 7)
        )
        show(
            f"{name}, as the loss takes it (a view over tokens)",
            alternate(
                lambda f=function: ours(f)()[:, None].expand(-1, tokens),
                lambda f=loop: f(returns, task, turn, valid).unsqueeze(-1).tile([1, tokens]) * mask,
                5,
            ),
        )
        show(
            f"{name}, written out over the tokens, masked",
            alternate(
                lambda f=function: adv.broadcast_to_tokens(ours(f)(), mask),
                lambda f=loop: f(returns, task, turn, valid).unsqueeze(-1).tile([1, tokens]) * mask,
                5,
            ),
        )
    weights = otb.realized_energy(torch.rand(rows, tokens, generator=g), mask)
    spread = returns[:, None].expand(rows, tokens).contiguous()
    fair = mask.float()
    a = otb.otb(spread, weights, group, mask, leave_one_out=False, epsilon=1e-8)
    b = loop_otb(spread, weights, group, fair)
    common = mask & (weights > 1e-3)
    assert torch.allclose(a[common], b[common], atol=1e-3), "OTB: the two sides disagree"
    ours_otb = lambda: otb.otb(spread, weights, group, mask, leave_one_out=True)  # noqa: E731
    show("OTB, loop over samples", alternate(ours_otb, lambda: loop_otb_left_out(spread, weights, group, fair), 1))
    show(
        "OTB, loop over groups, own sample included",
        alternate(ours_otb, lambda: loop_otb(spread, weights, group, fair), 3),
    )


def resident() -> tuple[int, int]:
    """Current and peak resident bytes of this process."""
    with open("/proc/self/status") as file:
        fields = dict(line.split(":", 1) for line in file)
    return int(fields["VmRSS"].split()[0]) * 1024, int(fields["VmHWM"].split()[0]) * 1024


def probe(way: str, rows: int) -> dict[str, float]:
    """Peak memory of one way, in this (fresh) process."""
    g = torch.Generator().manual_seed(0)
    hidden = torch.randn(4 * rows, 64, generator=g)
    weight = torch.randn(VOCABULARY, 64, generator=g)
    tokens = torch.randint(VOCABULARY, (4 * rows,), generator=g)
    small = torch.zeros(8, dtype=torch.int64)
    if way == "linear backward":
        hidden.requires_grad_(), weight.requires_grad_()
    # Warm up what allocates once: thread pools, matmul workspaces, autograd.
    linear_token_statistics(hidden[:8], weight[:512], small)
    logits = hidden[:rows].detach() @ weight.detach().T if way.startswith("logits") else None
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")
    before = resident()[0]
    start = time.process_time()
    if way == "linear":
        out = linear_token_statistics(hidden, weight, tokens, rows=rows)
    elif way == "linear backward":
        out = linear_token_statistics(hidden, weight, tokens, rows=rows)
        out.logprobs.sum().backward()
    elif way == "logits":
        out = token_statistics(logits, tokens[:rows])
    else:
        logp = logits.log_softmax(-1)
        out = (logp.gather(-1, tokens[:rows, None]), logp.exp().square().sum(-1))
    seconds = time.process_time() - start
    return {"bytes": resident()[1] - before, "seconds": seconds, "sum": float(out[0].detach().sum())}


def memory(rows: int) -> None:
    """Peaks of each way, in chunks of logits."""
    chunk = rows * VOCABULARY * 4
    print(f"\nvocabulary {VOCABULARY}, chunk of {rows} rows = {chunk / 2**20:.0f} MiB of float32 logits")
    print(f"{'way':58s} {'peak':>12s} {'in chunks':>10s}")
    gradients = 4 * (VOCABULARY * 64 + 4 * rows * 64)
    ways = {
        "linear": ("hidden states -> log π and Σπ², 4 chunks of rows", 0),
        "linear backward": ("the same, with its backward pass, gradients not counted", gradients),
        "logits": ("given logits -> log π and Σπ², logits counted", -chunk),
        "logits plain": ("given logits, log_softmax and exp, logits counted", -chunk),
    }
    for way, (text, allowance) in ways.items():
        command = [sys.executable, __file__, "--probe", way, "--rows", str(rows)]
        settings = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536"}
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300, env=settings)
        found = json.loads(done.stdout)
        used = found["bytes"] - allowance
        print(f"{text:58s} {used / 2**20:8.0f} MiB {used / chunk:9.2f}x  ({found['seconds']:.1f} CPU s)")


def main() -> None:
    """Run what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=3072)
    parser.add_argument("--tokens", type=int, default=8192)
    parser.add_argument("--rows", type=int, default=512, help="rows of logits in a chunk")
    parser.add_argument("--probe", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.probe:
        print(json.dumps(probe(arguments.probe, arguments.rows)))
        return
    speed(arguments.turns, arguments.tokens)
    memory(arguments.rows)


if __name__ == "__main__":
    main()
