"""A task ready to be judged: a loaded reference with seeded weights that draws inputs and computes their answers.

>>> instance = load_problem(task, "tiny").instance(seed)          # weights
>>> call = instance.draw_call(other_seed, pick_variant(secret, 1))  # inputs and their oracle
>>> compare(outputs_of_the_candidate, call.oracle, instance.rule)

No candidate ever runs here.

Inputs that are the same in every draw of a task: masks, ``arange``, tables, ones.

A candidate that ignores such an input, or hard-codes its contents, is right on every draw and wrong as soon as a caller
passes something else. Checked calls of any variant but ``declared`` therefore change these inputs within their kind, if
the reference accepts it; if not, the input is named in the task's notes and in the verdict. Plain numbers and lists of
them have a call of their own, in which nothing else is new.

Finds the axes of an input along which the reference works independently: rows of a layer norm, channels of a batch
norm.

Inputs whose *slices* differ (inputs.py) show a shortcut only where a slice is a whole unit of work: rows of a batch
norm that differ leave the statistics of every channel alike. An axis is independent when no element of an output
follows both from its first position and from the others; that is tried by changing one and then the others.

Detects references whose answer depends on random numbers: a candidate draws others, and would be wrong only by
chance.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any

import torch
from torch.utils._pytree import tree_flatten, tree_leaves, tree_map

from drkernel.base.modes import DispatchMode
from drkernel.task import Precision, Task, TaskError, override_constants, sized_reference
from drkernel.tasks.inputs import VARIANTS, Variant, draw_inputs, role_of
from drkernel.tasks.oracle import Oracle, OracleMaker, RawOutput, ToleranceRule, alike, tolerance_for
from drkernel.tasks.reference import (
    Reference,
    load_reference,
    randomize_parameters,
    remembered,
    scattered,
    seeded,
    vary_parameters,
)

SEEDS = (0, 1, 2)
"""Draws that are compared."""
FEWEST = 16
"""Elements that a mask of two numbers has at least."""
CHANGED = 0.25
"""Share of a mask's elements that are drawn anew."""


@dataclass(frozen=True)
class Constants:
    """A task's constant inputs, by place and name."""

    changed: dict[int, str]
    """Inputs that checked calls change."""
    kept: dict[int, str]
    """Inputs that stay, because no other value of their kind is known or the reference refuses it."""
    numbers: dict[int, str]
    """Plain numbers, and lists of them, that the reference accepts others for."""


def _unchanging(reference: Reference) -> tuple[dict[int, str], dict[int, str]]:
    """Return places and names of tensors, and of plain numbers and lists of them, that are the same in every draw and
    not declared fixed by the source."""
    first, *others = (reference.draw_inputs(seed) for seed in SEEDS)
    names = dict(enumerate(reference.argument_names()))
    tensors, numbers = dict[int, str](), dict[int, str]()
    for place, value in enumerate(first):
        name, leaves = names.get(place, str(place)), tree_leaves(value)
        if name in reference.fixed_inputs or not all(same_values([value], draw[place : place + 1]) for draw in others):
            continue
        if isinstance(value, torch.Tensor) and value.numel():
            tensors[place] = name
        elif leaves and all(isinstance(one, bool | int | float) for one in leaves):
            numbers[place] = name
    return tensors, numbers


def _other_number(generator: torch.Generator, number: bool | int | float) -> bool | int | float:
    """Return another number: a flag is negated, a power of two halved."""
    if isinstance(number, bool):
        return not number
    if isinstance(number, int):
        halves = number >= 4 and number & (number - 1) == 0
        return number // 2 if halves else number - 1 if number > 1 or number < 0 else number + 1
    spread = 0.25 + 0.5 * float(torch.rand(1, generator=generator, dtype=torch.float64))
    return number * (1 + spread) if number else spread


def same_values(left: Any, right: Any) -> bool:
    """Whether two drawn values are equal, NaN included; objects that cannot be compared count as equal."""
    (mine, form), (theirs, other) = tree_flatten(left), tree_flatten(right)
    return form == other and all(map(_same_leaf, mine, theirs))


def _same_leaf(left: Any, right: Any) -> bool:
    if type(left) is not type(right):
        return False
    if isinstance(left, torch.Tensor):
        if left.shape != right.shape or left.dtype != right.dtype:
            return False
        return left.layout != torch.strided or bool(((left == right) | ((left != left) & (right != right))).all())
    return not isinstance(left, (int, float, str, bool)) or left == right or left != left


def perturbed(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor | None:
    """Return another tensor of the same kind, shape, strides and dtype; None if no other value of its kind is known.

    A quarter of a mask (booleans, or two values) is redrawn; each row keeps a True, and both values. ``arange`` and
    other whole numbers come in another order, sorted ones (offsets, lengths) as others between the same ends. Floats
    are each multiplied by a log-normal factor near one; zeros become small normal numbers.
    """
    flat = tensor.detach().reshape(-1).clone()
    kinds = torch.unique(flat[: 1 << 16])
    if tensor.dtype == torch.bool:
        changed = flat ^ (torch.rand(flat.shape, generator=generator) < CHANGED)
    elif tensor.is_floating_point() and (len(kinds) == 1 or not len(kinds) <= 2):
        changed = scattered(flat, generator)
    elif len(kinds) == 2:
        if tensor.numel() < FEWEST:  # offsets or sizes rather than a mask
            return None
        drawn = flat[torch.randperm(flat.numel(), generator=generator)]
        changed = torch.where(torch.rand(flat.shape, generator=generator) < CHANGED, drawn, flat)
    elif tensor.is_floating_point() or tensor.is_complex() or len(kinds) < 2:
        return None
    else:
        changed = _reordered(flat, generator)
    rows = changed.reshape(tensor.shape)
    if tensor.dim() and (tensor.dtype == torch.bool or len(kinds) == 2):
        rows = _keep_rows_alive(rows, tensor)
    if torch.equal(rows, tensor):
        return None
    return torch.empty_like(tensor).copy_(rows)


def _keep_rows_alive(rows: torch.Tensor, before: torch.Tensor) -> torch.Tensor:
    """Restore rows (along the last axis) that lost every True, or one of two values."""
    if rows.dtype == torch.bool:
        dead = before.any(-1, keepdim=True) & ~rows.any(-1, keepdim=True)
    else:
        varied = (before != before[..., :1]).any(-1, keepdim=True)
        dead = varied & ~(rows != rows[..., :1]).any(-1, keepdim=True)
    return torch.where(dead, before, rows)


def _reordered(flat: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    steps = flat[1:].long() - flat[:-1].long()
    if bool((steps >= 0).all()) and not bool((steps == 1).all()):
        low, high = int(flat[0]), int(flat[-1])
        inner = torch.randint(low, high + 1, (flat.numel() - 2,), generator=generator).sort().values
        return torch.cat([flat[:1].long(), inner, flat[-1:].long()]).to(flat.dtype)
    return flat[torch.randperm(flat.numel(), generator=generator)]


ENOUGH = 10
"""slices, so that each treatment has its own; no further axis is cut then"""
TRIED_ELEMENTS = 1 << 23
"""Most elements of all inputs for a trial, which holds several copies of them."""


@remembered
def _slices(reference: Reference, precision: Precision) -> dict[int, tuple[int, ...]]:
    """Return, by place, the axes along which slices of a free input are to lie: as many independent ones as give
    :data:`ENOUGH` slices, the first first. Inputs are left out where the first axis alone serves, or none is found."""
    maker = OracleMaker(reference.build(0), precision)
    inputs, others = reference.draw_inputs(0), reference.draw_inputs(1)
    tensors = [value for value in inputs if isinstance(value, torch.Tensor)]
    if sum(value.numel() for value in tensors) > TRIED_ELEMENTS:
        return {}
    many = [place for place, value in enumerate(inputs) if isinstance(value, torch.Tensor) and value.dim() > 1]
    places = [place for place in many if role_of(inputs[place]) not in ("fixed", "simplex", "scale_only")]
    found = {}
    try:
        outputs = maker.run(inputs) if places else []
        for place in places:
            axes = _axes(inputs, others, place, outputs, maker)
            if axes and axes != (0,):
                found[place] = axes
    except Exception:  # a reference may refuse mixtures of two of its draws with any exception
        return {}
    return found


def _axes(
    inputs: list[Any], others: list[Any], place: int, outputs: Sequence[RawOutput], maker: OracleMaker
) -> tuple[int, ...]:
    """Return the independent axes of one input, up to :data:`ENOUGH` slices; never all of its axes."""
    shape = inputs[place].shape
    chosen: list[int] = []
    count = 1
    for axis in range(len(shape)):
        if count >= ENOUGH or len(chosen) == len(shape) - 1:
            break
        if shape[axis] > 1 and _is_independent(inputs, others, place, axis, outputs, maker):
            chosen.append(axis)
            count *= shape[axis]
    return tuple(chosen)


def _is_independent(
    inputs: list[Any],
    others: list[Any],
    place: int,
    axis: int,
    outputs: Sequence[RawOutput],
    maker: OracleMaker,
) -> bool:
    """Whether no output element follows from the axis's first position and from another, and some from the first."""
    value, other = inputs[place], others[place]
    if other.shape != value.shape:
        return False
    length = value.shape[axis]
    first = torch.cat([other.narrow(axis, 0, 1), value.narrow(axis, 1, length - 1)], axis)
    rest = torch.cat([value.narrow(axis, 0, 1), other.narrow(axis, 1, length - 1)], axis)
    moved = [maker.run([*inputs[:place], changed, *inputs[place + 1 :]]) for changed in (first, rest)]
    by_first, by_rest = ([_changed(a, b) for a, b in zip(outputs, run, strict=True)] for run in moved)
    if any(a.shape != b.shape for a, b in zip(by_first, by_rest, strict=True)):
        return False
    apart = not any(bool((a & b).any()) for a, b in zip(by_first, by_rest, strict=True))
    return apart and any(bool(a.any()) for a in by_first)


def _changed(before: RawOutput, after: RawOutput) -> torch.Tensor:
    """Which elements differ; a single True where the forms do."""
    if isinstance(before, torch.Tensor) and isinstance(after, torch.Tensor) and before.shape == after.shape:
        return (before != after) & ~(before.isnan() & after.isnan())
    return torch.tensor(not isinstance(before, torch.Tensor) and before != after)


STRENGTHS = (1.0, 0.5, 0.2, 0.0)
FRAGILE = ("zeros", "tiny", "ties")
"""Treatments of ``mixed`` inputs that a reference may divide by, or find two equal maxima in. It is tried without them
before it is tried at less strength."""

LEAST_SPREAD = 0.1
"""Share of its ordinary spread (on the task's own inputs) that an output's spread counts for at least.

Large inputs drive many functions to zero; errors are then not measured in units of what little is left: ``tanh`` as
``2 sigmoid(2x) - 1`` is right to 1e-7, not to 1e-12.
"""


@dataclass(frozen=True)
class ReferenceCall:
    """One call of the reference: its inputs and the expected outputs."""

    inputs: list[Any]
    oracle: Oracle
    variant: Variant
    strength: float
    """Strength of the variant: below 1 where the reference overflows or flips choices at full strength."""
    changed: tuple[str, ...] = ()
    """Names of the inputs that are the same in every draw of the task and that this call changes."""
    without: tuple[str, ...] = ()
    """Treatments that a ``mixed`` input lacks, because the reference is not finite or not stable on them."""


class Instance:
    """A reference with one set of weights. Not thread-safe."""

    def __init__(self, problem: Problem, seed: int, randomize: bool = True) -> None:
        self.problem = problem
        self.seed = seed
        self.init_args, self.init_kwargs = problem.reference.draw_init(seed)
        self.model = problem.reference.build(seed)
        self.randomized: list[str] = randomize_parameters(self.model, seed) if randomize else []
        """Names of the parameters that the constructor made constant and that were drawn anew."""
        self.rule: ToleranceRule = tolerance_for(problem.task.precision, problem.task.tolerance)
        self._maker: OracleMaker | None = None
        self._least_spreads: list[float] | None = None

    def vary(self, names: Iterable[str]) -> None:
        """Change parameters that the constructor sets without a draw, so that another seed leaves them as they were."""
        vary_parameters(self.model, names, self.seed)

    def state_dict(self) -> dict[str, torch.Tensor]:
        """Return the module's parameters and persistent buffers, by name; not copies, and not to be changed."""
        return {name: tensor.detach() for name, tensor in self.model.state_dict().items()}

    def run(self, inputs: list[Any]) -> list[RawOutput]:
        """Return the reference's outputs at the declared precision. Raises :class:`TaskError` where it does not run."""
        with _of_the_reference():
            return self._oracles().run(inputs)

    def oracle(self, inputs: list[Any]) -> Oracle:
        """Return the oracle of given inputs. Raises :class:`TaskError` where the reference does not run on them."""
        with _of_the_reference():
            return self._oracles()(inputs, self._least_spreads or ())

    def draw_call(self, seed: int, variant: Variant = "declared") -> ReferenceCall:
        """Draw fresh inputs and their oracle. Weakens the variant where the reference is not finite or not stable on
        it."""
        if variant == "declared" or self.problem.task.distribution == "fixed":
            inputs = draw_inputs(self.problem.reference, seed)
            oracle = self.oracle(inputs)
            if self._least_spreads is None:
                self._least_spreads = [LEAST_SPREAD * out.spread for out in oracle.outputs]
            return ReferenceCall(inputs, oracle, "declared", 1.0)
        if self._least_spreads is None:
            self.draw_call(self.seed)
        constants = self.problem.constants.changed
        for strength, without in _attempts(variant):
            inputs = draw_inputs(
                self.problem.reference,
                seed,
                variant,
                strength,
                self.problem.widens,
                slices=self.problem.slices if variant == "mixed" else None,
                without=without,
            )
            changed = constants if strength > 0 else {}
            inputs = with_perturbed(inputs, changed, seed)
            try:
                oracle = self.oracle(inputs)
            except TaskError:  # large numbers that become an index, say
                if strength > 0:
                    continue
                raise
            if usable(oracle):
                break
        oracle = replace(oracle, mixed=variant == "mixed")
        return ReferenceCall(inputs, oracle, variant, strength, tuple(changed.values()), without)

    def renumbered(self, call: ReferenceCall, seed: int) -> ReferenceCall:
        """Return ``call`` with other plain numbers, and nothing else new."""
        numbers = self.problem.constants.numbers
        inputs = with_perturbed(call.inputs, numbers, seed)
        return ReferenceCall(inputs, self.oracle(inputs), call.variant, call.strength, tuple(numbers.values()))

    def _oracles(self) -> OracleMaker:
        if self._maker is None:
            self._maker = OracleMaker(self.model, self.problem.task.precision, self.seed)
        return self._maker


@contextmanager
def _of_the_reference() -> Iterator[None]:
    """Say of whatever the block raises that it is the reference's: an index out of bounds is no candidate's fault."""
    try:
        yield
    except (TaskError, MemoryError):
        raise
    except Exception as error:
        raise TaskError(f"the reference raised {type(error).__name__}: {error}") from error


@dataclass(frozen=True)
class Problem:
    """A task at one size profile, loaded."""

    task: Task
    profile: str | None
    reference: Reference

    @property
    def widens(self) -> frozenset[int]:
        """Places of inputs that are positive or in [0, 1] only by the way they are drawn: the reference is finite on
        any value."""
        return _widens(self.reference, self.task.precision)

    @property
    def slices(self) -> dict[int, tuple[int, ...]]:
        """Axes along which the slices of ``mixed`` inputs lie, by place, where it is not the first axis alone."""
        return _slices(self.reference, self.task.precision)

    @property
    def constants(self) -> Constants:
        """The inputs that are the same in every draw, and which of them checked calls change."""
        return _constants(self.reference, self.task.precision)

    def instance(self, seed: int, randomize: bool = True) -> Instance:
        """Return an instance with weights from ``seed``.

        ``randomize=False`` leaves them as the constructor makes them, which both sides can build from one seed when a
        candidate's parameters have other names or shapes.
        """
        return Instance(self, seed, randomize)


def load_problem(task: Task, profile: str | None) -> Problem:
    """Load a task's reference at a size profile. Raises ``TaskError`` when it does not load."""
    return Problem(task, profile, load_reference(_sized(task, profile)))


def _attempts(variant: Variant) -> Iterator[tuple[float, tuple[str, ...]]]:
    """Strengths of a variant, and treatments that it is to lack, in the order in which they are tried."""
    yield STRENGTHS[0], ()
    lacking: tuple[str, ...] = ()
    if variant == "mixed":
        yield STRENGTHS[0], FRAGILE[:2]
        yield STRENGTHS[0], FRAGILE
        lacking = FRAGILE
    for strength in STRENGTHS[1:]:
        yield strength, lacking


def usable(oracle: Oracle) -> bool:
    """Return whether a candidate can be held to this answer: it is finite, and rounding flips almost none of it."""
    return oracle.finite and oracle.unstable_fraction <= 0.01


def with_perturbed(inputs: list[Any], places: Iterable[int], seed: int) -> list[Any]:
    """Return ``inputs`` with the constants at these places changed within their kind."""
    generator = torch.Generator().manual_seed(seed ^ _CONSTANTS)
    varied = list(inputs)
    for place in places:
        if not isinstance(inputs[place], torch.Tensor):
            varied[place] = tree_map(partial(_other_number, generator), inputs[place])
        elif (other := perturbed(inputs[place], generator)) is not None:
            varied[place] = other
    return varied


_CONSTANTS = 0x5C0A57A7


@remembered
def _widens(reference: Reference, precision: Precision) -> frozenset[int]:
    inputs = enumerate(reference.draw_inputs(0))
    places = [n for n, v in inputs if isinstance(v, torch.Tensor) and role_of(v) in ("unit", "positive")]
    maker = OracleMaker(reference.build(0), precision) if places else None

    def defined(seed: int, variant: Variant, widened: frozenset[int]) -> bool:
        assert maker is not None
        full = (without for strength, without in _attempts(variant) if strength == STRENGTHS[0])
        draws = (draw_inputs(reference, seed, variant, 1.0, widened, without=without) for without in full)
        return any(_defined(maker, drawn) is not None for drawn in draws)

    def fine(widened: frozenset[int]) -> bool:
        return all(defined(seed, variant, widened) for seed, variant in enumerate(VARIANTS[1:]))

    return _largest(places, fine)


@remembered
def _constants(reference: Reference, precision: Precision) -> Constants:
    named, numbers = _unchanging(reference)
    inputs = reference.draw_inputs(0)
    generator = torch.Generator().manual_seed(0)
    places = [place for place in named if perturbed(inputs[place], generator) is not None]
    maker = OracleMaker(reference.build(0), precision) if places or numbers else None

    def fine(chosen: frozenset[int]) -> bool:
        assert maker is not None
        for seed in range(3):
            oracle = _defined(maker, with_perturbed(reference.draw_inputs(seed), sorted(chosen), seed))
            if oracle is None or not usable(oracle):
                return False
        return True

    changed, others = _largest(places, fine), _largest(list(numbers), fine)
    named |= numbers
    return Constants(
        {place: name for place, name in named.items() if place in changed},
        {place: name for place, name in named.items() if place not in changed | others},
        {place: name for place, name in numbers.items() if place in others},
    )


def _defined(maker: OracleMaker, inputs: list[Any]) -> Oracle | None:
    """Return the oracle where the reference runs on these inputs, also in double, and is finite; else None."""
    try:
        oracle = maker(inputs)
    except Exception:  # it may refuse what is out of its domain (indices out of bounds, ...) with any exception
        return None
    return oracle if oracle.finite and oracle.kind == "fp64" else None


def _largest(places: list[int], fine: Callable[[frozenset[int]], bool]) -> frozenset[int]:
    """Return all places if ``fine`` accepts them together, else those accepted one by one, if they are accepted
    together."""
    everything = frozenset(places)
    if not everything or fine(everything):
        return everything
    alone = frozenset(place for place in places if len(places) > 1 and fine(frozenset([place])))
    return alone if alone and fine(alone) else frozenset()


_override_constants = lru_cache(maxsize=512)(lambda source, items: override_constants(source, dict(items)))


def _sized(task: Task, profile: str | None) -> str:
    """:func:`drkernel.task.sized_reference`, cached: parsing costs more than a tiny task's forward."""
    if profile is None or profile not in task.profiles:
        return sized_reference(task, profile)
    return _override_constants(task.reference, tuple(sorted(task.profiles[profile].items())))


# ---- references whose answer depends on random numbers


OTHER = 1 << 20
"""the second run's seeds start here (a generator uses only the lower 32 bits)"""


class RandomReference(TaskError):
    """The answer to a task is not determined by inputs and weights; the message says what draws."""


def require_determined(instance: Instance) -> None:
    """Raise :class:`RandomReference` where the reference's answer depends on random numbers. Two runs, once a source.

    What draws without effect on the answer (dropout in eval mode, with ``p = 0``, or of zeros) is allowed.
    """
    cause = _random_by(instance.problem.reference, instance.problem.task.precision)
    if cause is not None:
        raise RandomReference(
            f"the reference is random: on the same inputs and weights its answer changes with {cause}. A candidate "
            "cannot draw the same numbers, so no answer would be right. Draw them in get_inputs() or in the "
            "constructor, call .eval() there, or set p = 0"
        )


@remembered
def _random_by(reference: Reference, precision: Precision) -> str | None:
    inputs, task = reference.draw_inputs(0), Task(id="any", reference=reference.source, precision=precision)
    try:
        return random_by(Problem(task, None, reference).instance(0), inputs)
    except Exception:  # a reference may raise anything, and does so again where its calls are made
        return None


def random_by(instance: Instance, inputs: list[Any]) -> str | None:
    """Name what changes the reference's answer from one run on ``inputs`` to another; None where nothing does."""
    with seeded(1):
        first = instance.run(inputs)
    other = _OtherNumbers()
    with seeded(OTHER), other:
        second = instance.run(inputs)
    if len(first) == len(second) and all(map(alike, first, second)):
        return None
    if not other.drawn:
        return "every call, though no operator of PyTorch draws (numbers of Python or NumPy, or state that it keeps)"
    layers = [
        f"{type(module).__name__} {name!r}"
        for name, module in instance.model.named_modules()
        if "Dropout" in type(module).__name__ and module.training and getattr(module, "p", 1.0)
    ]
    where = f" (in training mode: {', '.join(layers[:4])}{', ...' if len(layers) > 4 else ''})" if layers else ""
    return f"the numbers that {', '.join(sorted(other.drawn))} draws{where}"


class _OtherNumbers(DispatchMode):
    """Operators that draw get other numbers, even where the module seeds a generator itself: one on a GPU gives others,
    too."""

    def __init__(self) -> None:
        super().__init__()
        self.drawn: set[str] = set()
        """names of the operators that drew"""
        self._seed = OTHER

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if torch.Tag.nondeterministic_seeded in func.tags:
            self.drawn.add(f"aten.{func._schema.name.removeprefix('aten::')}")
            self._seed += 1
            torch.default_generator.manual_seed(self._seed)
            kwargs |= {"generator": None} if "generator" in kwargs else {}
        return func(*args, **kwargs)
