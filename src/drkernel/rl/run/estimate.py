"""``drkernel train --dry-run``: what a recipe will need, and what this machine lacks, before anything starts.

The figures are computed from the recipe and the model's config, not measured; the rates that they assume are printed
beside them.
"""

import importlib.util
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from drkernel.rl.model.policy import LoraConfig
from drkernel.rl.run.recipe import Recipe

GB = 1e9


@dataclass(frozen=True)
class ModelShape:
    """The model dimensions that memory and time depend on."""

    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    mlp: int
    vocab: int
    tied: int

    @property
    def parameters(self) -> int:
        """Number of weights, not counting norms."""
        attention = self.hidden * self.head_dim * (2 * self.heads + 2 * self.kv_heads)
        embeddings = self.vocab * self.hidden * (1 if self.tied else 2)
        return self.layers * (attention + 3 * self.hidden * self.mlp) + embeddings

    def adapter_parameters(self, lora: LoraConfig) -> int:
        """Weights of low-rank adapters on the targeted matrices of every layer."""
        q, kv = self.heads * self.head_dim, self.kv_heads * self.head_dim
        sides = {
            "q_proj": self.hidden + q,
            "k_proj": self.hidden + kv,
            "v_proj": self.hidden + kv,
            "o_proj": self.hidden + q,
            "gate_proj": self.hidden + self.mlp,
            "up_proj": self.hidden + self.mlp,
            "down_proj": self.hidden + self.mlp,
        }
        return self.layers * lora.rank * sum(sides[name] for name in lora.targets if name in sides)

    @property
    def cache_numbers(self) -> int:
        """How many numbers one token occupies in the KV cache."""
        return 2 * self.layers * self.kv_heads * self.head_dim


KNOWN = {
    "qwen3-8b": ModelShape(4096, 36, 32, 8, 128, 12288, 151_936, tied=0),
    "qwen3-14b": ModelShape(5120, 40, 40, 8, 128, 17408, 151_936, tied=0),
}
"""Shapes of published models, for machines that have not downloaded them."""


@dataclass(frozen=True)
class RunEstimate:
    """Memory (bytes) and time (seconds) of a run, and what is missing."""

    shape: ModelShape
    memory: dict[str, float]
    """bytes by purpose"""
    times: dict[str, float]
    """seconds by stage"""
    assumptions: tuple[str, ...]
    missing: tuple[str, ...]
    """what this machine lacks, in words"""
    available: float
    """memory, in bytes, of the device that will hold the policy"""

    @property
    def total(self) -> float:
        """Total memory in bytes."""
        return sum(self.memory.values())


def find_shape(recipe: Recipe) -> ModelShape | None:
    """Return the model's shape from the recipe, a local config.json, or a published model's name; None when unknown."""
    terms = recipe.policy
    if terms.from_scratch:
        p = terms.pocket
        vocab = terms.tokenizer.vocab_size
        return ModelShape(p.hidden, p.layers, p.heads, p.kv_heads, p.head_dim, p.mlp, vocab, 1)
    path = Path(terms.model) / "config.json"
    if path.is_file():
        c: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        heads = c["num_attention_heads"]
        return ModelShape(
            hidden=c["hidden_size"],
            layers=c["num_hidden_layers"],
            heads=heads,
            kv_heads=c.get("num_key_value_heads", heads),
            head_dim=c.get("head_dim") or c["hidden_size"] // heads,
            mlp=c["intermediate_size"],
            vocab=c["vocab_size"],
            tied=int(c.get("tie_word_embeddings", True)),
        )
    name = terms.model.lower().rsplit("/", 1)[-1].removesuffix("-base")
    return KNOWN.get(name)


def estimate(recipe: Recipe, ranks: int = 1) -> RunEstimate:
    """The needs of a recipe on ``ranks`` devices. Raises ``ValueError`` when the model's shape is not known."""
    shape = find_shape(recipe)
    if shape is None:
        raise ValueError(
            f"the size of {recipe.policy.model!r} is not known here: give a local directory with its config.json"
        )
    gpu = not recipe.policy.from_scratch and recipe.policy.device != "cpu"
    flops = 300e12 if gpu else 60e9
    measured = recipe.episode.settings.place.timing == "measured"
    judge_rate = 0.5 if measured else 10.0
    slots = recipe.pool.slots or os.cpu_count() or 1
    times = _times(recipe, shape, ranks * flops, judge_rate * slots)
    return RunEstimate(
        shape=shape,
        memory=_memory(recipe, shape, ranks),
        times=times,
        assumptions=(
            f"{flops / 1e12:g} TFLOP/s a device in training, a tenth of that in sampling",
            f"{judge_rate:g} evaluations a second and slot, {slots} slots",
            f"answers of half the token budget; {ranks} device(s)",
        ),
        missing=tuple(_missing(recipe)),
        available=_available(gpu),
    )


def trained_parameters(recipe: Recipe, shape: ModelShape) -> int:
    """Weights that train: all, or those of the adapters."""
    lora = recipe.policy.lora
    return shape.parameters if lora is None else shape.adapter_parameters(lora)


def _memory(recipe: Recipe, shape: ModelShape, ranks: int) -> dict[str, float]:
    """Return the bytes needed on the busiest device, by purpose, of the dtypes that the trainer really uses.

    Weights, gradients and moments are fp32 whatever ``policy.dtype`` says, and a decoder copies the weights: in fp32
    too, unless ``rollout.dtype`` is bf16. An evaluation samples from a second copy, with the weights as they are.
    """
    low, trained = recipe.policy.dtype == "bf16", trained_parameters(recipe, shape)
    learner = recipe.rl.learner if recipe.rl is not None else None
    micro = max(learner.micro_tokens if learner else 0, recipe.sft.micro_tokens if recipe.sft else 0)
    width = shape.hidden * (4 if recipe.policy.checkpoint_activations else 34) + 3 * shape.mlp
    layers = shape.layers if not recipe.policy.checkpoint_activations else shape.layers / 4
    packed = ranks == 1 and not recipe.policy.checkpoint_activations
    sampling = recipe.rollout
    wide = 2 if sampling.dtype == "bf16" else 4
    numbers = sampling.sampling.rows * sampling.context * shape.cache_numbers
    return {
        "weights (fp32)": 4 * shape.parameters / ranks,
        "gradients": 4 * trained / ranks,
        "optimiser (AdamW)": 8 * trained / ranks,
        "activations": float(micro * width * layers * (2 if low else 4)) / 8,
        "attention masks": 0.0 if packed else float(micro * micro * (3 if low else 5)),
        "logits of one chunk": 512 * shape.vocab * 4.0,
        "sampler's weights": float(wide * shape.parameters) if recipe.rl is not None else 0.0,
        "sampler's cache": float(wide * numbers) if recipe.rl is not None else 0.0,
        "evaluation's sampler": 4.0 * (shape.parameters + numbers) if _evaluates(recipe) else 0.0,
        "reference policy": 4.0 * shape.parameters / ranks if learner and learner.kl_coefficient else 0.0,
    }


def _evaluates(recipe: Recipe) -> bool:
    terms = recipe.evaluation
    return terms.final_tasks > 0 or (recipe.rl is not None and recipe.rl.steps > terms.every)


def _times(recipe: Recipe, shape: ModelShape, flops: float, judge_rate: float) -> dict[str, float]:
    """Return the seconds of every stage."""
    turns, answer = recipe.episode.turns, recipe.rollout.sampling.max_tokens / 2
    sequence = min(recipe.rollout.context, 2 * turns * answer)  # as many tokens of prompts and feedback as of answers
    times: dict[str, float] = {}
    if recipe.coldstart is not None:
        times["cold start"] = recipe.coldstart.tasks * recipe.coldstart.episode.turns / judge_rate
        if recipe.copying is not None:
            modules, kernels = recipe.copying.tasks * answer, recipe.copying.kernels * 3 * answer
            copied = (modules + kernels) * recipe.copying.epochs
            times["copying"] = copied * 6 * shape.parameters / flops
        if recipe.sft is not None:
            tokens = recipe.coldstart.tasks * sequence * recipe.sft.epochs
            times["sft"] = tokens * 6 * shape.parameters / flops

    def rollout(trajectories: float) -> float:
        sampled = trajectories * turns * answer * 2 * shape.parameters / (flops / 10)
        return max(sampled, trajectories * turns / judge_rate)

    terms = recipe.evaluation
    final = 2 * rollout(terms.final_tasks * terms.final_samples)
    if recipe.rl is not None:
        trajectories = recipe.rollout.tasks * recipe.rollout.samples
        learn = trajectories * sequence * 8 * shape.parameters / flops
        times["rl"] = recipe.rl.steps * (rollout(trajectories) + learn)
        times["evaluation"] = final + recipe.rl.steps // terms.every * rollout(terms.tasks * terms.samples)
    else:
        times["evaluation"] = final / 2
    return times


def _missing(recipe: Recipe) -> list[str]:
    """List the requirements that are not met, and what would be downloaded."""
    terms = recipe.policy
    if terms.from_scratch or Path(terms.model).exists():
        return lacking(recipe)
    return [f"the model {terms.model!r} is not a directory here; it would be downloaded by name", *lacking(recipe)]


def lacking(recipe: Recipe, *, judged_here: bool = True) -> list[str]:
    """List what the run cannot do without and this machine has not: packages, devices, files."""
    import torch

    missing = []
    terms = recipe.policy
    if terms.device.startswith("cuda") and not torch.cuda.is_available():
        missing.append("a CUDA device for the policy (policy.device)")
    on_card = judged_here and recipe.episode.settings.place.kind == "cuda"
    if on_card and not torch.cuda.is_available():
        missing.append(f"the device {recipe.episode.settings.device!r} to measure on (episode.settings.device)")
    elif on_card and (shared := shared_card(recipe)) is not None and torch.cuda.device_count() > local_ranks():
        other = f"set episode.settings.device=cuda:{local_ranks()}"
        missing.append(f"a card for the judge alone ({shared}); this machine has {torch.cuda.device_count()}: {other}")
    if terms.lora is not None and importlib.util.find_spec("peft") is None:
        missing.append("the peft package: pip install 'drkernel[lora]'")
    missing += [
        f"the {sink} package: pip install 'drkernel[{sink}]'"
        for sink in recipe.sinks
        if not importlib.util.find_spec(sink)
    ]
    for name in ("transformers", "tokenizers"):
        if importlib.util.find_spec(name) is None:
            missing.append(f"the {name} package: pip install 'drkernel[train]'")
    return missing + lacking_files(recipe)


def shared_card(recipe: Recipe) -> str | None:
    """Why the judge would measure on a card that the policy trains on; None when it would not."""
    settings, policy = recipe.episode.settings, recipe.policy.device
    if settings.place.kind != "cuda" or policy == "cpu":
        return None
    first = int(settings.device.partition(":")[2])
    cards = {int(policy.partition(":")[2])} if ":" in policy else set(range(local_ranks()))
    if not cards & set(range(first, first + local_ranks())):
        return None
    return f"the policy is on {settings.device}, too, which makes its times noisy and takes its memory"


def local_ranks() -> int:
    """Ranks of ``torchrun`` on this machine."""
    return int(os.environ.get("LOCAL_WORLD_SIZE", "1"))


def lacking_files(recipe: Recipe) -> list[str]:
    """List the files that the recipe names and that do not exist."""
    missing = []
    given = recipe.coldstart_file
    if given is not None and not Path(given).is_file():
        missing.append(f"the cold-start file {given}: make one with drkernel coldstart")
    for label, source in (("train_tasks", recipe.train_tasks), ("heldout_tasks", recipe.heldout_tasks)):
        kind, _, place = (source.load or "").partition(":")
        root = place.split("/level", 1)[0] if kind == "kernelbench" else place
        if place and not Path(root).exists():
            missing.append(f"{label}: {root} does not exist")
    return missing


def _available(gpu: bool) -> float:
    """Return the bytes of the device's memory; 0 when there is no such device."""
    import torch

    if gpu:
        return float(torch.cuda.get_device_properties(0).total_memory) if torch.cuda.is_available() else 0.0
    return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))


def dry_run(recipe: Recipe) -> str:
    """Return the estimate as a page of text."""
    ranks = int(os.environ.get("WORLD_SIZE", "1"))
    found = estimate(recipe, ranks)
    lines = [f"{recipe.name}: {recipe.policy.model}, {found.shape.parameters / 1e6:,.1f} M parameters", "", "memory"]
    lines += [f"  {name:<22}{size_text(value):>12}" for name, value in found.memory.items() if value]
    there = f"of {size_text(found.available)} here" if found.available else "(no such device here)"
    lines.append(f"  {'in all':<22}{size_text(found.total):>12}   {there}")
    lines += ["", "time"] + [f"  {name:<22}{_span(value):>12}" for name, value in found.times.items()]
    lines.append(f"  {'in all':<22}{_span(sum(found.times.values())):>12}")
    lines += ["", "assumed: " + "; ".join(found.assumptions), "", "missing on this machine:"]
    lines += [f"  - {item}" for item in found.missing] or ["  nothing"]
    if found.total > found.available > 0:
        more = f"{size_text(found.total)} is more than {size_text(found.available)}"
        lines.append(f"  - memory: {more}; use torchrun, LoRA, fewer rows, or --engine verl")
    return "\n".join(lines)


def size_text(value: float) -> str:
    """Format bytes."""
    return f"{value / GB:,.1f} GB" if value >= 0.1 * GB else f"{value / 1e6:,.1f} MB"


def _span(seconds: float) -> str:
    if seconds >= 2 * 3600:
        return f"{seconds / 3600:,.1f} h"
    return f"{seconds / 60:,.1f} min" if seconds >= 120 else f"{seconds:,.0f} s"
