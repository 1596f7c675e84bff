"""Which sizes a candidate is checked at, and which it is timed at.

Correctness needs data and runs at sizes that can be executed; time needs none and is modelled at the task's own.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map

from drkernel.gym.judge.modelled_timing import host_modes
from drkernel.gym.request import EvalRequest
from drkernel.sim.gpu.datafree.engine import DataFreeEngine
from drkernel.sim.gpu.datafree.records import DataFree
from drkernel.sim.host.tensor import DeviceTensor
from drkernel.sim.process.control_socket import Form
from drkernel.sim.spec import get_spec
from drkernel.task import sized_reference
from drkernel.tasks.cost import ScaleLimits, tensor_form
from drkernel.tasks.errors import TaskError
from drkernel.tasks.literals import size_literals
from drkernel.tasks.reference import Reference, load_reference
from drkernel.tasks.thin import Sizing, own_source, thin_sizings
from drkernel.verdict import Sizes

EXERCISED = ScaleLimits(bytes=2 << 20, flops=4e7)
"""of a call that only shows that a kernel is right"""
MOST_EXERCISES = 3
_FORMS_FROM = "h200"
"""a GPU to draw inputs on: their forms are the same on all"""


@dataclass(frozen=True)
class Chosen:
    """A reference at sizes that were chosen for a run."""

    source: str
    changed: dict[str, tuple[int, int]]
    """constant -> (the task's own, used here)"""
    profile: str | None
    kept_rows: bool
    """only axes of independent work are shorter than the task's own"""

    @property
    def sizes(self) -> Sizes:
        """For the verdict."""
        return Sizes(profile=self.profile, changed=self.changed, inputs=forms_of(self.source).words)


def chosen_to_check(request: EvalRequest) -> Chosen:
    """The sizes that answers are compared at. Whatever is wrong with the asked profile is a :class:`TaskError`."""
    task, settings = request.task, request.settings
    if settings.profile is not None or not settings.place.simulated:
        try:
            source = sized_reference(task, settings.profile)
            return Chosen(source, changed_between(own_source(task), source), settings.profile, False)
        except (KeyError, ValueError, SyntaxError) as error:
            raise TaskError(str(error.args[0] if error.args else error)) from error
    limits = ScaleLimits(bytes=settings.checked_bytes, flops=settings.checked_flops)
    try:
        return _of_sizing(thin_sizings(task, limits)[0])
    except TaskError:  # it does not run on shapes alone: what is wrong with it comes out when it is run for real
        return Chosen(own_source(task), {}, None, True)


def chosen_to_time(request: EvalRequest, checked: Chosen) -> Chosen | None:
    """The sizes that a run without data is to time; None where what is checked is timed."""
    task, settings = request.task, request.settings
    if not settings.timing or settings.unsafe_no_checks or settings.time_at == "checked":
        return None
    own = own_source(task)
    if not settings.place.simulated or own == checked.source:
        return None
    return Chosen(own, {}, "full" if "full" in task.profiles else None, True)


def sizings_to_exercise(request: EvalRequest, besides: str) -> list[Chosen]:
    """Sizes at which kernels that another size showed may be launched and compared, the best first."""
    most = ScaleLimits(bytes=request.settings.checked_bytes, flops=request.settings.checked_flops)
    try:
        sizings = thin_sizings(request.task, EXERCISED)
    except TaskError:
        return []
    fitting = [one for one in sizings if one.source != besides and one.cost.over(most) <= 1]
    return [_of_sizing(one) for one in fitting[:MOST_EXERCISES]]


def _of_sizing(sizing: Sizing) -> Chosen:
    return Chosen(sizing.source, sizing.changed, None, sizing.kept_rows)


def changed_between(own: str, used: str) -> dict[str, tuple[int, int]]:
    """Sizes of two texts of one reference that differ: label -> (own, used)."""
    if own == used:
        return {}
    there = {literal.label: literal.value for literal in size_literals(used)}
    pairs = {literal.label: (literal.value, there.get(literal.label, 1)) for literal in size_literals(own)}
    return {label: pair for label, pair in pairs.items() if pair[0] != pair[1]}


# ---- forms of what goes in and what comes out


@dataclass(frozen=True)
class Forms:
    """What a call of a reference takes and gives, without elements."""

    inputs: tuple[Any, ...]
    """arguments: meta tensors, with their elements (as host tensors) where those are few and whole numbers"""
    words: tuple[str, ...]
    """the same in words"""
    state: dict[str, Form]
    """of parameters and buffers; empty where the module does not build without data"""
    outputs: tuple[Form | None, ...] | None
    """of what is returned (None for what is no tensor); None where it does not run without data"""


@lru_cache(maxsize=512)
def forms_of(source: str) -> Forms:
    """The forms of a reference's source. Raises :class:`TaskError` when inputs cannot be drawn."""
    reference = load_reference(source)
    engine = DataFreeEngine(get_spec(_FORMS_FROM), DataFree())
    with host_modes(engine), torch.device("cuda"), torch.no_grad():
        drawn = reference.draw_inputs(0)
        state, outputs = _run(reference, drawn)
    inputs = [tree_map(lambda leaf: _off_device(leaf, engine), value) for value in drawn]
    names = reference.argument_names()
    words = tuple(f"{names[n] if n < len(names) else n} {_word(value)}" for n, value in enumerate(inputs))
    return Forms(tuple(inputs), words, state, outputs)


def _run(reference: Reference, drawn: list[Any]) -> tuple[dict[str, Form], tuple[Form | None, ...] | None]:
    """Forms of state and outputs, as far as they can be had without data."""
    try:
        model = reference.build(0)
        state = {name: (tuple(value.shape), value.dtype) for name, value in model.state_dict().items()}
    except TaskError:
        return {}, None
    try:
        results = tree_leaves(model(*drawn))
    except Exception:  # a reference may raise anything; that it cannot be timed is said where it is timed
        return state, None
    forms = [(tuple(one.shape), one.dtype) if isinstance(one, torch.Tensor) else None for one in results]
    return state, tuple(forms)


def _off_device(leaf: Any, engine: DataFreeEngine) -> Any:
    """A drawn value as the judge hands it over: whole numbers with their values, all else by its form."""
    if not isinstance(leaf, torch.Tensor):
        return leaf
    contents = engine.contents(leaf._handle) if isinstance(leaf, DeviceTensor) else leaf
    if contents is not None and not leaf.dtype.is_floating_point:
        return contents.clone(memory_format=torch.preserve_format)
    return torch.empty_strided(tuple(leaf.shape), leaf.stride(), dtype=leaf.dtype, device="meta")


def _word(value: Any) -> str:
    if not isinstance(value, torch.Tensor):
        return repr(value)[:100]
    return tensor_form(value)
