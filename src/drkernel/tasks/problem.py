"""A task ready to be judged: a loaded reference with seeded weights that draws inputs and computes their answers.

>>> instance = load_problem(task, "tiny").instance(seed)          # weights
>>> call = instance.draw_call(other_seed, pick_variant(secret, 1))  # inputs and their oracle
>>> compare(outputs_of_the_candidate, call.oracle, instance.rule)

No candidate ever runs here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import torch

from drkernel.task import Precision, Task, override_constants, sized_reference
from drkernel.tasks.constants import Constants, constant_places, number_places, other_numbers, perturbed
from drkernel.tasks.errors import TaskError
from drkernel.tasks.inputs import VARIANTS, Variant, draw_inputs, role_of
from drkernel.tasks.oracle import Oracle, OracleMaker, RawOutput
from drkernel.tasks.reference import Reference, load_reference, randomize_parameters, vary_parameters
from drkernel.tasks.slices import slice_axes
from drkernel.tasks.tolerance import ToleranceRule, tolerance_for

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
    """Names of the inputs that are the same in every draw of the task and that this call changes (constants.py)."""
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
            varied[place] = other_numbers(inputs[place], generator)
        elif (other := perturbed(inputs[place], generator)) is not None:
            varied[place] = other
    return varied


_CONSTANTS = 0x5C0A57A7


@lru_cache(maxsize=256)
def _widens(reference: Reference, precision: Precision) -> frozenset[int]:
    """Determine this once for each source, on seeds of its own."""
    inputs = enumerate(reference.draw_inputs(0))
    places = [n for n, v in inputs if isinstance(v, torch.Tensor) and role_of(v) in ("unit", "positive")]
    maker = OracleMaker(reference.build(0), precision) if places else None

    def defined(seed: int, variant: Variant, widened: frozenset[int]) -> bool:
        assert maker is not None
        full = (without for strength, without in _attempts(variant) if strength == STRENGTHS[0])
        draws = (draw_inputs(reference, seed, variant, 1.0, widened, without=without) for without in full)
        return any(map(maker.is_defined, draws))

    def fine(widened: frozenset[int]) -> bool:
        return all(defined(seed, variant, widened) for seed, variant in enumerate(VARIANTS[1:]))

    return _largest(places, fine)


@lru_cache(maxsize=256)
def _slices(reference: Reference, precision: Precision) -> dict[int, tuple[int, ...]]:
    """Determine this once for each source, on seeds of its own."""
    return slice_axes(reference, OracleMaker(reference.build(0), precision))


@lru_cache(maxsize=256)
def _constants(reference: Reference, precision: Precision) -> Constants:
    """Determine this once for each source, on seeds of its own."""
    named, numbers = constant_places(reference), number_places(reference)
    inputs = reference.draw_inputs(0)
    generator = torch.Generator().manual_seed(0)
    places = [place for place in named if perturbed(inputs[place], generator) is not None]
    maker = OracleMaker(reference.build(0), precision) if places or numbers else None

    def fine(chosen: frozenset[int]) -> bool:
        assert maker is not None
        for seed in range(3):
            drawn = with_perturbed(reference.draw_inputs(seed), sorted(chosen), seed)
            try:
                oracle = maker(drawn)
            except Exception:  # as above: indices out of bounds, offsets out of order, ...
                return False
            if not usable(oracle) or oracle.kind != "fp64":
                return False
        return True

    changed, others = _largest(places, fine), _largest(list(numbers), fine)
    named |= numbers
    return Constants(
        {place: name for place, name in named.items() if place in changed},
        {place: name for place, name in named.items() if place not in changed | others},
        {place: name for place, name in numbers.items() if place in others},
    )


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
