"""A vLLM server as the sampler of training, against our own: tokens per second of processor time, and mismatch.

    python benchmarks/served.py MODEL --python .venv-vllm/bin/python

MODEL is a directory with a small model (a run's ``checkpoints/sft``). Both samplers get the same prompts and draw
answers of the same lengths. The server is asked in fp32 and in bf16; what it drew is then scored by the policy's fp32
training forward, for the figures of mismatch and what MRS rejects of it. Processor time is that of the sampling
process and of the server with its children: with other work beside it, wall time says nothing.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import tempfile
import time
from pathlib import Path

import torch

from drkernel.rl.maths.mismatch import mismatch
from drkernel.rl.model.answerer import PolicyServer, ServedSampler, ServerConfig
from drkernel.rl.model.policy import Example, Policy, PolicyConfig
from drkernel.rl.model.sampler import Conversation, Sampler, SamplingConfig

ROWS, CONTEXT = 32, 480


def work(policy, requests, tokens):
    """Prompts of random words, and the budgets of their answers."""
    draw = random.Random(0)
    words = list(range(8, len(policy.tokenizer)))
    prompts = [draw.choices(words, k=64) for _ in range(requests)]
    return prompts, [draw.randint(tokens // 2, tokens) for _ in prompts]


async def drawn(sampler, prompts, lengths):
    """The turns that a sampler draws after the prompts, in their order."""
    asked = [Conversation(k, budget=length) for k, length in enumerate(lengths)]
    found = {}
    async for index, turn in sampler.stream(asked, prompts, keep_cache=False):
        found[index] = turn
    return [found[k] for k in range(len(prompts))]


def spent(session):
    """Seconds of processor time of all processes of a session."""
    total = 0
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            fields = Path(f"/proc/{name}/stat").read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        total += sum(map(int, fields[11:13])) if int(fields[3]) == session else 0
    return total / os.sysconf("SC_CLK_TCK")


def seen(policy, prompts, turns):
    """The mismatch between what a sampler said of its tokens and the policy's training forward."""
    examples = [
        Example([*p, *t.token_ids], [False] * len(p) + [True] * len(t.token_ids))
        for p, t in zip(prompts, turns, strict=True)
    ]
    with torch.no_grad():
        flat = policy.statistics(examples).logprobs.float().cpu()
    mask = torch.zeros(len(turns), max(len(t.token_ids) for t in turns), dtype=torch.bool)
    said = torch.zeros(mask.shape)
    for row, turn in enumerate(turns):
        mask[row, : len(turn.token_ids)] = True
        said[row, : len(turn.token_ids)] = torch.tensor(turn.logprobs)
    found = mismatch(torch.zeros(mask.shape).masked_scatter(mask, flat), said, mask).metrics
    names = ("k3", "max_abs_log_ratio", "rejected_sequence_fraction")
    return ", ".join(f"{name} {found[name]:.3g}" for name in names)


def show(name, policy, prompts, turns, seconds):
    tokens = sum(len(turn.token_ids) for turn in turns)
    print(f"{name:<22}{tokens / seconds:>7.0f} tokens/s   {tokens} tokens, {seconds:.2f} s; "
          f"{seen(policy, prompts, turns)}", flush=True)  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--python", required=True, help="interpreter of an environment that has vllm")
    parser.add_argument("--requests", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--dtypes", nargs="*", default=["float32", "bfloat16"])
    args = parser.parse_args()
    torch.set_num_threads(1)
    policy = Policy.load(PolicyConfig(model=args.model, device="cpu"))
    prompts, lengths = work(policy, args.requests, args.tokens)
    config = SamplingConfig(temperature=1.0, max_tokens=args.tokens, rows=ROWS, stop_at_fence=False)
    for name in ("warm-up", "ours, fp32"):
        sampler = Sampler(policy.make_decoder(ROWS, CONTEXT), policy.tokenizer, config)
        before = time.process_time()
        turns = asyncio.run(drawn(sampler, prompts, lengths))
        if name != "warm-up":
            show(name, policy, prompts, turns, time.process_time() - before)
    for dtype in args.dtypes:
        with tempfile.TemporaryDirectory() as place:
            terms = ServerConfig(python=args.python, dtype=dtype, memory=0.05, args=("--enforce-eager",))
            server = PolicyServer.start(terms, policy, Path(place), CONTEXT)
            try:
                print(f"vLLM, {dtype}: mean difference at the check {server.check(policy, config):.2g} nats")
                sampler = ServedSampler(server, policy.tokenizer, config, CONTEXT)
                asyncio.run(drawn(sampler, prompts, lengths))
                own, theirs = time.process_time(), spent(server.process.pid)
                turns = asyncio.run(drawn(sampler, prompts, lengths))
                own, theirs = time.process_time() - own, spent(server.process.pid) - theirs
                show(f"vLLM, {dtype}", policy, prompts, turns, theirs + own)
                print(f"  of that, {own:.2f} s are our requests")
                before = time.perf_counter()
                server.load(policy)
                print(f"  weights exported and loaded again in {time.perf_counter() - before:.2f} s of wall time")
            finally:
                server.close()


if __name__ == "__main__":
    main()
