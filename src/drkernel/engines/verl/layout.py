"""``drkernel train RECIPE --engine verl --dry-run``: which GPU does what, how much memory and how many hours, with the
arithmetic.

Nothing here is measured on the cluster: every line shows the formula's numbers, and the rates that it assumes stand in
the recipe's ``verl`` section.
"""

from __future__ import annotations

from dataclasses import dataclass

from drkernel.config import ConfigError
from drkernel.engines.verl.translate import (
    VerlSettings,
    learner_of,
    micro_tokens,
    on_cpu,
    sampler_size,
    samples_in_half,
    settings_of,
    start_model,
)
from drkernel.rl.run.estimate import (
    GB,
    ModelShape,
    answer_tokens,
    find_shape,
    size_text,
    trained_parameters,
    trajectory_tokens,
)  # fmt: skip
from drkernel.rl.run.recipe import Recipe

CONTEXT, GRAPHS = 1.5 * GB, 2 * GB
"""Bytes of a GPU, in round figures, for CUDA's context with NCCL's buffers, and for a sampler's captured graphs."""


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
    """bytes held all the time (with ``offload`` only while training)"""
    training: tuple[Item, ...]
    sampling: tuple[Item, ...]
    seconds: tuple[Item, ...]
    apart: bool
    """Whether other GPUs sample than train, at the same time."""

    @property
    def peak(self) -> float:
        """The larger of the two phases, in bytes."""
        return max(self.phase(self.training), self.phase(self.sampling))

    def phase(self, items: tuple[Item, ...]) -> float:
        """Bytes of a phase, including the state that is held through it where the GPUs are the same."""
        return sum(item.value for item in (*(() if self.apart and items is self.sampling else self.state), *items))

    @property
    def step(self) -> float:
        """Seconds of a step: grading goes on while others are sampled."""
        by_name = {item.name: item.value for item in self.seconds}
        drawing = max(by_name["sampling"] + by_name["reading"], by_name["grading"])
        return max(drawing, by_name["learning"]) if self.apart else drawing + by_name["learning"]


def lay_out(recipe: Recipe) -> Layout:
    """Estimate a recipe on verl. Raises :class:`ConfigError` when the model's shape is not known."""
    terms, shape = settings_of(recipe.verl), find_shape(recipe)
    if shape is None:
        raise ConfigError(f"policy.model {recipe.policy.model}: give a local directory with its config.json")
    state = () if terms.offload else _state(recipe, shape, terms)
    return Layout(
        state=(*state, *_fixed(recipe)),
        training=(*(_state(recipe, shape, terms) if terms.offload else ()), *_training(recipe, shape, terms)),
        sampling=_sampling(recipe, shape, terms),
        seconds=_seconds(recipe, shape, terms),
        apart=recipe.rollout.staleness > 0,
    )


def _state(recipe: Recipe, shape: ModelShape, terms: VerlSettings) -> tuple[Item, ...]:
    gpus, trained = terms.nodes * terms.gpus, trained_parameters(recipe, shape)
    split = f"/ {gpus} GPUs"
    return (
        Item("weights", 4 * shape.parameters / gpus, f"{_count(shape.parameters)} x 4 bytes (fp32) {split}"),
        Item("gradients", 4 * trained / gpus, f"{_count(trained)} x 4 bytes {split}"),
        Item("AdamW", 8 * trained / gpus, f"{_count(trained)} x 8 bytes (two moments) {split}"),
    )


def _fixed(recipe: Recipe) -> tuple[Item, ...]:
    return () if on_cpu(recipe) else (Item("CUDA, NCCL", CONTEXT, "context and buffers, a round figure"),)


def _training(recipe: Recipe, shape: ModelShape, terms: VerlSettings) -> tuple[Item, ...]:
    wide = 2 if recipe.policy.dtype == "bf16" else 4
    tokens = micro_tokens(recipe, terms)
    layer = (shape.parameters - shape.vocab * shape.hidden * (1 if shape.tied else 2)) / shape.layers
    width = 34 * shape.hidden + 3 * shape.mlp
    if recipe.policy.checkpoint_activations:
        kept = wide * tokens * (shape.hidden * shape.layers + width)
        how = (
            f"{tokens:,} tokens x ({shape.layers} layers x {shape.hidden} kept + {width} of the one computed again: "
            f"34 x {shape.hidden} + 3 x {shape.mlp}) x {wide} bytes"
        )
    else:
        kept = wide * tokens * width * shape.layers
        how = f"{tokens:,} tokens x {shape.layers} layers x (34 x {shape.hidden} + 3 x {shape.mlp}) x {wide} bytes"
    return (
        Item("gathered layers", 2 * wide * layer, f"2 layers x {layer / 1e6:,.0f} M x {wide} bytes"),
        Item("activations", float(kept), how),
        Item(
            "logits, gradient",
            2.0 * wide * tokens * shape.vocab,
            f"2 x {tokens:,} tokens x {shape.vocab:,} words x {wide} bytes",
        ),
    )


def _sampler_bytes(recipe: Recipe) -> int:
    return 2 if samples_in_half(recipe) else 4


def _sampling(recipe: Recipe, shape: ModelShape, terms: VerlSettings) -> tuple[Item, ...]:
    wide = _sampler_bytes(recipe)
    _, parts = sampler_size(recipe, terms)
    kind = "bf16" if wide == 2 else "fp32"
    how = f"{_count(shape.parameters)} x {wide} bytes ({kind}) / {parts} GPUs"
    weights = Item("sampler's weights", wide * shape.parameters / parts, how)
    if on_cpu(recipe):
        rows = recipe.rollout.sampling.rows
        held = float(rows * recipe.rollout.context * shape.cache_numbers * wide)
        return weights, Item("its cache", held, f"{rows} rows x {recipe.rollout.context} tokens")
    cache = terms.sampler_memory * terms.gpu_memory - weights.value - GRAPHS
    if cache <= 0:
        raise ConfigError(
            f"verl.sampler_memory {terms.sampler_memory}: the sampler's weights take {weights.value / GB:.1f} GB of a "
            f"GPU and leave no room for its cache; raise it, or verl.sampler_parallel"
        )
    token = shape.cache_numbers * wide
    return (
        weights,
        Item(
            "its cache",
            cache,
            f"the rest of {terms.sampler_memory:g} x {terms.gpu_memory / GB:g} GB; on {parts} GPU(s) "
            f"{cache * parts / token:,.0f} tokens of {token:,} bytes",
        ),
        Item("its graphs", GRAPHS, "captured graphs and workspaces, a round figure"),
    )


def _seconds(recipe: Recipe, shape: ModelShape, terms: VerlSettings) -> tuple[Item, ...]:
    gpus, turns = terms.nodes * terms.gpus, recipe.episode.turns
    plays, answer, length = (
        recipe.rollout.tasks * recipe.rollout.samples,
        answer_tokens(recipe),
        trajectory_tokens(recipe),
    )
    wide = _sampler_bytes(recipe)
    samplers, parts = sampler_size(recipe, terms)
    copies = max(1, samplers // parts)
    per_token = shape.cache_numbers * wide
    cache = next(item.value for item in _sampling(recipe, shape, terms) if item.name == "its cache")
    together = max(1.0, min(plays / copies, cache * parts / (length / 2 * per_token)))
    moved = (shape.parameters * wide + together * length / 2 * per_token) / parts
    rounds = plays * turns * answer / copies / together
    sampling = rounds * moved / terms.gpu_bandwidth
    read = plays * max(0.0, length - turns * answer)
    # of a causal mask half is computed: scores and sums of `length / 2` tokens on average
    forward = 2.0 * shape.parameters + 2.0 * shape.layers * shape.heads * shape.head_dim * length
    again, reference = recipe.policy.checkpoint_activations, learner_of(recipe).kl_coefficient > 0
    passes = 4 + again + reference
    rate = max(1, terms.judge_gpus) * terms.judge_rate
    trained = f"{gpus} GPUs / {terms.gpu_flops / 1e12:g} TFLOP/s"
    return (
        Item(
            "sampling",
            sampling,
            f"{plays} trajectories x {turns} turns x {answer:,.0f} tokens / {copies} samplers / {together:.0f} at once "
            f"= {rounds:,.0f} rounds x {moved / GB:.1f} GB (weights, half-full caches) / "
            f"{terms.gpu_bandwidth / 1e12:g} TB/s",
        ),
        Item(
            "reading",
            forward * read / (samplers * terms.gpu_flops),
            f"{read:,.0f} tokens of prompts and feedback x {_flops(forward)} FLOP / {samplers} GPUs / "
            f"{terms.gpu_flops / 1e12:g} TFLOP/s",
        ),
        Item("grading", plays * turns / rate, f"{plays * turns} answers / {rate:g} a second, while sampling"),
        Item(
            "learning",
            passes * forward * plays * length / (gpus * terms.gpu_flops),
            f"{passes} forward passes' work (old log-probabilities 1, {'reference 1, ' if reference else ''}loss 1, "
            f"gradient 2{', computed again 1' if again else ''}) x {plays * length:,.0f} tokens x "
            f"{_flops(forward)} FLOP (2 x {_count(shape.parameters)}, the rest attention) / {trained}",
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
    lines += ["#", f"# memory of one {kind}: what is always there, and what training and sampling add in their turns"]
    for title, items in (("always", found.state), ("training", found.training), ("sampling", found.sampling)):
        lines += [f"#   {title:<9}{item.name:<20}{size_text(item.value):>10}   {item.how}" for item in items]
    lines += [
        f"#   in all: {size_text(found.phase(found.training))} while training, "
        f"{size_text(found.phase(found.sampling))} while sampling{_room(recipe, terms, found)}"
    ]
    answer, length = answer_tokens(recipe), trajectory_tokens(recipe)
    lines += [
        "#",
        f"# time of one step when answers have {answer:,.0f} of their {recipe.rollout.sampling.max_tokens:,} tokens, "
        f"and trajectories {length:,.0f}",
        "# with prompts and feedback; the rates are assumptions (verl.gpu_flops, gpu_bandwidth, judge_rate)",
    ]
    lines += [f"#   {item.name:<12}{item.value:>8,.0f} s   {item.how}" for item in found.seconds]
    hours = found.step * 100 / 3600
    then = "beside it learning, the longer of both" if found.apart else "then learning"
    lines.append(
        f"#   {found.step:,.0f} s a step (sampling and reading, or grading where that takes longer; {then}): "
        f"{hours:,.1f} hours per 100 steps"
    )
    return "\n".join(lines)


def _room(recipe: Recipe, terms: VerlSettings, found: Layout) -> str:
    if on_cpu(recipe):
        return ""
    spare = terms.gpu_memory - found.peak
    if spare >= 0:
        return f"; of {size_text(terms.gpu_memory)}, {size_text(spare)} are left"
    remedy = "raise verl.gpus, nodes or sequence_parallel, lower sampler_memory, or set verl.offload"
    return f"\n#   DOES NOT FIT into {size_text(terms.gpu_memory)}: {remedy}"


def _placement(recipe: Recipe, terms: VerlSettings, pool: str | None) -> list[str]:
    if on_cpu(recipe):
        first = f"{terms.nodes * terms.gpus} processes on CPUs train; one more samples"
    else:
        gpus, parts = sampler_size(recipe, terms)
        where = f"on {gpus} other GPUs, sampling while these train" if terms.sampler_gpus else "asleep while training"
        first = (
            f"{terms.nodes} machine(s) x GPUs 0..{terms.gpus - 1}: FSDP over all of them; {gpus // parts} copies of "
            f"{terms.sampler} over {parts} GPU(s) each, {where}"
        )
    device = recipe.episode.settings.device
    if pool is not None:
        judge = f"judge: the service at {pool}"
    elif recipe.episode.settings.place.simulated:
        judge = f"judge: a local pool in each of {terms.workers} workers"
    else:
        judge = "judge: none yet; give --pool URL of a `drkernel serve`"
    if not recipe.episode.settings.place.simulated:
        apart = f"{terms.judge_gpus} GPUs are assumed" if terms.judge_gpus else "1 GPU is assumed"
        judge += (
            f", with GPUs that are not in the line above ({apart}); each of its workers measures on its own {device}"
        )
    return [first, judge, f"{terms.workers} worker process(es) play the episodes"]


def _count(parameters: float) -> str:
    return f"{parameters / 1e9:,.4g} G" if parameters >= 1e9 else f"{parameters / 1e6:,.4g} M"


def _flops(value: float) -> str:
    return f"{value / 1e9:,.4g} G"
