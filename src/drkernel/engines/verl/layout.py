"""``drkernel train RECIPE --engine verl --dry-run``: which GPU does what, how much memory and how many hours, with the
arithmetic.

Nothing here is measured on the cluster: every line shows the formula's numbers, and the rates that it assumes stand in
the recipe's ``verl`` section.
"""

from __future__ import annotations

from dataclasses import dataclass

from drkernel.config import ConfigError
from drkernel.engines.verl.settings import VerlSettings, settings_of
from drkernel.engines.verl.translate import (
    learner_of,
    micro_tokens,
    on_cpu,
    rows_of_prompt,
    samples_in_half,
    start_model,
)
from drkernel.rl.run.estimate import Shape, find_shape
from drkernel.rl.run.recipe import Recipe

GB = 1e9


@dataclass(frozen=True)
class Item:
    """One line of the estimate."""

    name: str
    value: float
    how: str
    """The arithmetic in words and numbers."""


@dataclass(frozen=True)
class Layout:
    """Memory of one training GPU in bytes, and seconds of one step."""

    state: tuple[Item, ...]
    """held all the time (with ``offload`` only while training)"""
    training: tuple[Item, ...]
    sampling: tuple[Item, ...]
    seconds: tuple[Item, ...]

    @property
    def peak(self) -> float:
        """The larger of the two phases, in bytes."""
        return max(self.phase(self.training), self.phase(self.sampling))

    def phase(self, items: tuple[Item, ...]) -> float:
        """Bytes of a phase with the state that is held through it."""
        return sum(item.value for item in (*self.state, *items))

    @property
    def step(self) -> float:
        """Seconds of a step: grading goes on while others are sampled."""
        by_name = {item.name: item.value for item in self.seconds}
        return max(by_name["sampling"], by_name["grading"]) + by_name["learning"]


def lay_out(recipe: Recipe) -> Layout:
    """Estimate a recipe on verl. Raises :class:`ConfigError` when the model's shape is not known."""
    terms, shape = settings_of(recipe.verl), find_shape(recipe)
    if shape is None:
        raise ConfigError(f"policy.model {recipe.policy.model}: give a local directory with its config.json")
    state = () if terms.offload else _state(recipe, shape, terms)
    return Layout(
        state=state,
        training=(*(_state(recipe, shape, terms) if terms.offload else ()), *_training(recipe, shape, terms)),
        sampling=_sampling(recipe, shape, terms),
        seconds=_seconds(recipe, shape, terms),
    )


def _state(recipe: Recipe, shape: Shape, terms: VerlSettings) -> tuple[Item, ...]:
    gpus, lora = terms.nodes * terms.gpus, recipe.policy.lora
    trained = shape.parameters if lora is None else shape.adapter_parameters(lora)
    split = f"/ {gpus} GPUs"
    return (
        Item("weights", 4 * shape.parameters / gpus, f"{shape.parameters / 1e9:.3g} G x 4 bytes (fp32) {split}"),
        Item("gradients", 4 * trained / gpus, f"{trained / 1e9:.3g} G x 4 bytes {split}"),
        Item("AdamW", 8 * trained / gpus, f"{trained / 1e9:.3g} G x 8 bytes {split}"),
    )


def _training(recipe: Recipe, shape: Shape, terms: VerlSettings) -> tuple[Item, ...]:
    wide = 2 if recipe.policy.dtype == "bf16" else 4
    tokens = micro_tokens(recipe, terms)
    layer = (shape.parameters - shape.vocab * shape.hidden * (1 if shape.tied else 2)) / shape.layers
    width = 34 * shape.hidden + 3 * shape.mlp
    if recipe.policy.checkpoint_activations:
        kept = wide * tokens * (shape.hidden * shape.layers + width)
        how = f"{tokens} tokens x ({shape.hidden} x {shape.layers} layers + {width} of one layer) x {wide} bytes"
    else:
        kept, how = wide * tokens * width * shape.layers, f"{tokens} tokens x {width} x {shape.layers} x {wide} bytes"
    return (
        Item("gathered layers", 2 * wide * layer, f"2 layers x {layer / 1e6:,.0f} M x {wide} bytes"),
        Item("activations", float(kept), how),
        Item(
            "logits, gradient",
            2.0 * wide * tokens * shape.vocab,
            f"2 x {tokens} tokens x {shape.vocab} x {wide} bytes",
        ),
    )


def _sampler_bytes(recipe: Recipe) -> int:
    return 2 if samples_in_half(recipe) else 4


def _sampling(recipe: Recipe, shape: Shape, terms: VerlSettings) -> tuple[Item, ...]:
    wide = _sampler_bytes(recipe)
    parts = terms.nodes * terms.gpus if on_cpu(recipe) else terms.sampler_parallel
    weights = Item("sampler's weights", wide * shape.parameters / parts, f"x {wide} bytes / {parts} GPUs")
    if on_cpu(recipe):
        rows = recipe.rollout.sampling.rows
        held = float(rows * recipe.rollout.context * shape.cache_numbers * wide)
        return weights, Item("its cache", held, f"{rows} rows x {recipe.rollout.context} tokens")
    cache = terms.sampler_memory * terms.gpu_memory - weights.value - 2 * GB
    if cache <= 0:
        raise ConfigError(
            f"verl.sampler_memory {terms.sampler_memory}: the sampler's weights take {weights.value / GB:.1f} GB of a "
            f"GPU and leave no room for its cache; raise it, or verl.sampler_parallel"
        )
    return (
        weights,
        Item("its cache", cache, f"{terms.sampler_memory:g} x {terms.gpu_memory / GB:g} GB less weights and 2 GB"),
        Item("its graphs", 2 * GB, "captured graphs and workspaces, a round figure"),
    )


def _seconds(recipe: Recipe, shape: Shape, terms: VerlSettings) -> tuple[Item, ...]:
    gpus, turns = terms.nodes * terms.gpus, recipe.episode.turns
    plays = recipe.rollout.tasks * rows_of_prompt(recipe)
    answer = recipe.rollout.sampling.max_tokens / 2
    length = min(recipe.rollout.context, 2 * turns * answer)
    wide = _sampler_bytes(recipe)
    parts = terms.sampler_parallel
    copies = max(1, gpus // parts)
    per_token = shape.cache_numbers * wide
    cache = next(item.value for item in _sampling(recipe, shape, terms) if item.name == "its cache")
    together = max(1.0, min(plays / copies, cache * parts / (length / 2 * per_token)))
    moved = (shape.parameters * wide + together * length / 2 * per_token) / parts
    rounds = plays * turns * answer / copies / together
    sampling = rounds * moved / terms.gpu_bandwidth
    factor = 10 if recipe.policy.checkpoint_activations else 8
    learning = factor * shape.parameters * plays * length / (gpus * terms.gpu_flops)
    rate = max(1, terms.judge_gpus) * terms.judge_rate
    return (
        Item(
            "sampling",
            sampling,
            f"{plays} trajectories x {turns} turns x {answer:.0f} tokens / {copies} samplers / {together:.0f} at once "
            f"= {rounds:,.0f} rounds x {moved / GB:.1f} GB / {terms.gpu_bandwidth / 1e12:g} TB/s",
        ),
        Item("grading", plays * turns / rate, f"{plays * turns} answers / {rate:g} a second, while sampling"),
        Item(
            "learning",
            learning,
            f"{factor} x {shape.parameters / 1e9:.3g} G x {plays * length:,.0f} tokens / {gpus} GPUs / "
            f"{terms.gpu_flops / 1e12:g} TFLOP/s",
        ),
    )


def describe(recipe: Recipe, pool: str | None) -> str:
    """Return placement, memory and time as a page of text."""
    terms, found = settings_of(recipe.verl), lay_out(recipe)
    steps = recipe.rl.steps if recipe.rl is not None else 0
    learner = learner_of(recipe)
    lines = [f"# {recipe.name} on verl, from {start_model(recipe)}; {steps} steps, {learner.advantage.name}", ""]
    lines += ["# placement", *(f"#   {line}" for line in _placement(recipe, terms, pool))]
    kind = "process" if on_cpu(recipe) else "training GPU"
    lines += ["#", f"# memory of one {kind}"]
    for title, items in (("always", found.state), ("training", found.training), ("sampling", found.sampling)):
        lines += [f"#   {title:<9}{item.name:<20}{_size(item.value):>10}   {item.how}" for item in items]
    here = f"{_size(found.peak)} at the peak" + ("" if on_cpu(recipe) else f" of {_size(terms.gpu_memory)}")
    lines += [
        f"#   training {_size(found.phase(found.training))}, sampling {_size(found.phase(found.sampling))}: {here}"
    ]
    if not on_cpu(recipe) and found.peak > terms.gpu_memory:
        lines.append("#   DOES NOT FIT: raise verl.gpus, nodes or sequence_parallel, or set verl.offload")
    lines += ["#", "# time of one step"]
    lines += [f"#   {item.name:<12}{item.value:>8,.0f} s   {item.how}" for item in found.seconds]
    hours = found.step * 100 / 3600
    lines.append(f"#   {found.step:,.0f} s a step, {hours:,.1f} hours per 100 steps (answers of half their budget)")
    return "\n".join(lines)


def _placement(recipe: Recipe, terms: VerlSettings, pool: str | None) -> list[str]:
    device = recipe.episode.settings.device
    if on_cpu(recipe):
        first = f"{terms.nodes * terms.gpus} processes on CPUs train; one more samples"
    else:
        copies = terms.nodes * terms.gpus // terms.sampler_parallel
        first = (
            f"{terms.nodes} machine(s) x GPUs 0..{terms.gpus - 1}: FSDP over all of them; {copies} copies of "
            f"{terms.sampler} over {terms.sampler_parallel} GPU(s) each, asleep while training"
        )
    if pool is not None:
        judge = f"judge: the service at {pool}"
    elif recipe.episode.settings.place.simulated:
        judge = f"judge: a local pool in each of {terms.workers} workers"
    else:
        judge = "judge: none yet; give --pool URL"
    if not recipe.episode.settings.place.simulated:
        judge += (
            f"; it measures on {device} of machines or GPUs that are not in the list above "
            f"({terms.judge_gpus} of them: CUDA_VISIBLE_DEVICES=... drkernel serve)"
        )
    return [first, judge, f"{terms.workers} worker process(es) play the episodes"]


def _size(value: float) -> str:
    return f"{value / GB:,.1f} GB" if value >= 0.1 * GB else f"{value / 1e6:,.1f} MB"
