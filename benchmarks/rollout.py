"""Sampling speed: our sampler against ``transformers.generate``: same model, prompts and ragged lengths, one run.

    python benchmarks/rollout.py                     the quickstart's model, answers of 20 to 160 tokens
    python benchmarks/rollout.py --hidden 256 --layers 4

Both sides sample at temperature 1 with their caches; every answer is made to end after a length drawn beforehand (the
same on both sides), as real answers end at different lengths. ``generate`` keeps a batch until its longest answer is
done; our sampler gives a finished row's place to the next prompt. Prints tokens a second, medians of interleaved
repeats. With ``--run DIR`` it prints instead which share of a finished run's RL steps was spent waiting for grades.
"""

from __future__ import annotations

import json
import random
import statistics
import time
from pathlib import Path

import torch

from drkernel.rl.model.lean import LeanDecoder
from drkernel.rl.model.policy import PocketConfig, make_pocket
from drkernel.rl.model.sampler import Conversation, Sampler, SamplingConfig
from surveys import parser_of

VOCAB, END, PAD = 1024, 3, 0


class FixedLengths(Sampler):
    """Ends the k-th conversation after ``lengths[k]`` tokens, whatever was drawn."""

    lengths: list[int]

    def _read(self, live, batch):
        logits = super()._read(live, batch)
        for entry in live[len(live) - len(batch) :]:
            entry.budget = self.lengths[entry.index]
        return logits


class _Tokenizer:
    """The part of a tokenizer that the sampler needs; no token ends an answer early."""

    end_id = -1
    fence_ids = frozenset()


def ours(model, prompts, lengths, rows):
    sampler = FixedLengths(
        LeanDecoder(model, rows, 512), _Tokenizer(), SamplingConfig(rows=rows, max_tokens=max(lengths))
    )
    sampler.lengths = lengths
    started = time.perf_counter()
    turns = sampler.sample([Conversation(seed=k) for k in range(len(prompts))], prompts)
    seconds = time.perf_counter() - started
    assert [len(turn.token_ids) for turn in turns] == lengths
    return sum(lengths) / seconds


def theirs(model, prompts, lengths, rows):
    """``generate`` in batches of ``rows``, prompts padded on the left, each row ended at its length."""
    from transformers import StoppingCriteria, StoppingCriteriaList

    class Ends(StoppingCriteria):
        def __init__(self, start, ends):
            self.start, self.ends = start, torch.tensor(ends)

        def __call__(self, input_ids, scores, **_):
            return input_ids.shape[1] - self.start >= self.ends

    started = time.perf_counter()
    for begin in range(0, len(prompts), rows):
        batch = prompts[begin : begin + rows]
        width = max(map(len, batch))
        ids = torch.tensor([[PAD] * (width - len(p)) + p for p in batch])
        mask = torch.tensor([[0] * (width - len(p)) + [1] * len(p) for p in batch])
        ends = lengths[begin : begin + rows]
        with torch.no_grad():
            model.generate(
                input_ids=ids,
                attention_mask=mask,
                do_sample=True,
                temperature=1.0,
                top_k=0,
                top_p=1.0,
                max_new_tokens=max(ends),
                eos_token_id=None,
                pad_token_id=PAD,
                stopping_criteria=StoppingCriteriaList([Ends(width, ends)]),
            )
    return sum(lengths) / (time.perf_counter() - started)


def waiting(run: Path) -> None:
    """Print where the seconds of a run's RL steps went."""
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    rows = [row for row in rows if row["stage"] == "rl"]
    total = sum(row["seconds"] for row in rows)
    for name in ("sample_seconds", "wait_seconds", "learn_seconds"):
        print(f"{name:<16}{sum(row[name] for row in rows) / total:7.1%} of {total:.0f} s in {len(rows)} steps")
    print("(wait_seconds are part of sample_seconds)")


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--prompts", type=int, default=128)
    parser.add_argument("--rows", type=int, default=64)
    parser.add_argument("--hidden", type=int, default=192)
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--shortest", type=int, default=20)
    parser.add_argument("--longest", type=int, default=160)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--run", type=Path, default=None)
    args = parser.parse_args()
    if args.run is not None:
        waiting(args.run)
        return
    heads = args.hidden // 32
    kv = 2 if heads % 2 == 0 else 1
    terms = PocketConfig(
        hidden=args.hidden, layers=args.layers, heads=heads, kv_heads=kv, mlp=8 * args.hidden // 3, context=512
    )
    model = make_pocket(terms, VOCAB, END, PAD, seed=0).eval()
    rng = random.Random(0)
    prompts = [[rng.randrange(4, VOCAB) for _ in range(rng.randint(30, 60))] for _ in range(args.prompts)]
    lengths = [rng.randint(args.shortest, args.longest) for _ in range(args.prompts)]
    results: dict[str, list[float]] = {"ours": [], "generate": []}
    for repeat in range(args.repeats + 1):
        for name, function in (("ours", ours), ("generate", theirs)):
            rate = function(model, prompts, lengths, args.rows)
            if repeat:  # the first round warms up
                results[name].append(rate)
    a, b = (statistics.median(results[name]) for name in ("ours", "generate"))
    parameters = sum(p.numel() for p in model.parameters())
    threads = torch.get_num_threads()
    print(f"{parameters / 1e6:.1f} M parameters, {args.prompts} prompts, {args.rows} rows, {threads} threads")
    print(f"answers of {args.shortest} to {args.longest} tokens, {sum(lengths)} in all, median of {args.repeats}")
    print(f"ours       {a:9.0f} tokens/s")
    print(f"generate   {b:9.0f} tokens/s")
    print(f"ratio      {a / b:9.2f}")


if __name__ == "__main__":
    main()
