"""A reference at sizes that nobody could execute here: its modelled time, and how much work it is.

The module is built and called on a device without data, in this process (see ``modelled_timing.py``): weights, inputs
and results are shapes, so that a product of 8192³ or a batch of 6 GB takes milliseconds and no memory.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from drkernel.gym.judge.modelled_timing import host_modes, require_eager
from drkernel.sim.cost.records import ITEM_BYTES
from drkernel.sim.gpu.datafree.engine import DataFreeEngine
from drkernel.sim.gpu.datafree.records import DataFree, OperatorCall
from drkernel.sim.spec import GPUSpec, get_spec
from drkernel.tasks.errors import TaskError
from drkernel.tasks.reference import Reference, load_reference
from drkernel.verdict import Profile

_KEPT = 512
_COUNTED_ON = "h200"
"""a GPU to count work on: operators and shapes are the same on all"""


@dataclass(frozen=True)
class Work:
    """The amount of work in one call of a reference, from shapes alone."""

    flops: float
    """floating-point operations of all operators, as the cost model counts them"""
    read: int
    """elements that operators read"""
    written: int
    """elements that operators write"""
    input_bytes: int
    """of the call's tensor arguments"""
    weight_bytes: int
    """of parameters and buffers"""
    output_bytes: int
    """of what the call returns"""
    operators: tuple[str, ...]
    """names of the operators with device work, in order"""


@dataclass(frozen=True)
class _Run:
    profile: Profile
    work: Work


def reference_profile_at(spec: GPUSpec, baseline: str, reference: Reference, *, conv_tf32: bool) -> Profile:
    """The modelled profile of one call of ``reference`` at the sizes of its source, cached by that source.

    Nothing of the size of weights or inputs is allocated. A second call is timed, as the candidate's are.

    Raises:
        TaskError: the reference does not run on the device, or goes by data that is not there; the message names it.
    """
    require_eager(baseline)
    return _run(reference.source, spec, conv_tf32).profile


def reference_work(reference: Reference) -> Work:
    """Return the amount of work in one call of ``reference``. Raises :class:`TaskError` as :func:`reference_profile_at`
    does."""
    return _run(reference.source, get_spec(_COUNTED_ON), False).work


@lru_cache(maxsize=_KEPT)
def _run(source: str, spec: GPUSpec, conv_tf32: bool) -> _Run:
    """Build the module on a fresh device without data and call it twice."""
    reference = load_reference(source)
    engine = DataFreeEngine(spec, DataFree(on_read="refuse"))
    engine.conv_tf32 = conv_tf32
    try:
        with host_modes(engine), torch.device("cuda"), torch.no_grad():
            model = reference.build(0)
            inputs = reference.draw_inputs(0)
            model(*inputs)
            engine.reset_counters()
            results = model(*inputs)
            weights = [*model.parameters(), *model.buffers()]
            sizes = [_bytes(group) for group in (inputs, weights, results)]
    except Exception as error:  # a reference may raise anything
        missed = [dependence.message for dependence in engine.record.dependences]
        why = "; ".join(missed) or f"{type(error).__name__}: {error}"
        raise TaskError(f"the reference does not run without data on {spec.full_name}: {why}") from error
    profile = engine.profile()
    return _Run(profile, _work(profile, engine.record.calls, sizes))


def _work(profile: Profile, calls: Iterable[OperatorCall], sizes: list[int]) -> Work:
    calls = list(calls)
    return Work(
        flops=sum(row.flops or 0.0 for row in profile.rows),
        read=sum(_elements(form) for call in calls for form in call.inputs),
        written=sum(_elements(form) for call in calls for form in call.outputs),
        input_bytes=sizes[0],
        weight_bytes=sizes[1],
        output_bytes=sizes[2],
        operators=tuple(call.name for call in calls),
    )


def _elements(form: tuple[str, tuple[int, ...]]) -> int:
    return torch.Size(form[1]).numel()


def _bytes(values: Any) -> int:
    """Bytes of the tensors among ``values``, each once."""
    tensors = {id(leaf): leaf for leaf in tree_leaves(values) if isinstance(leaf, torch.Tensor)}
    return sum(leaf.numel() * ITEM_BYTES[str(leaf.dtype).removeprefix("torch.")] for leaf in tensors.values())
