"""Detects references whose answer depends on random numbers: a candidate draws others, and would be wrong only by
chance.
"""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from drkernel.tasks.errors import TaskError
from drkernel.tasks.oracle import RawOutput
from drkernel.tasks.problem import Instance
from drkernel.tasks.reference import Reference, seeded

ALIKE = 1e-3
"""difference of two runs, relative to an element and to the mean of all, below which random numbers do not matter"""
OTHER = 1 << 20
"""the second run's seeds start here (a generator uses only the lower 32 bits)"""
_known: WeakKeyDictionary[Reference, str | None] = WeakKeyDictionary()


class RandomReference(TaskError):
    """The answer to a task is not determined by inputs and weights; the message says what draws."""


def require_determined(instance: Instance) -> None:
    """Raise :class:`RandomReference` where the reference's answer depends on random numbers. Two runs, once a source.

    What draws without effect on the answer (dropout in eval mode, with ``p = 0``, or of zeros) is allowed.
    """
    reference = instance.problem.reference
    if reference not in _known:
        try:
            inputs = reference.draw_inputs(0)
        except TaskError:
            raise
        except Exception:  # a reference may raise anything, and does so again where its calls are made
            return
        try:
            _known[reference] = random_by(instance, inputs)
        except Exception:  # again where its calls are made
            return
    cause = _known[reference]
    if cause is not None:
        raise RandomReference(
            f"the reference is random: on the same inputs and weights its answer changes with {cause}. A candidate "
            "cannot draw the same numbers, so no answer would be right. Draw them in get_inputs() or in the "
            "constructor, call .eval() there, or set p = 0"
        )


def random_by(instance: Instance, inputs: list[Any]) -> str | None:
    """Name what changes the reference's answer from one run on ``inputs`` to another; None where nothing does."""
    with seeded(1):
        first = instance.run(inputs)
    other = _OtherNumbers()
    with seeded(OTHER), other:
        second = instance.run(inputs)
    if len(first) == len(second) and all(map(_alike, first, second)):
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


class _OtherNumbers(TorchDispatchMode):
    """Operators that draw get other numbers, even where the module seeds a generator itself: one on a GPU gives others,
    too."""

    def __init__(self) -> None:
        super().__init__()
        self.drawn: set[str] = set()
        """names of the operators that drew"""
        self._seed = OTHER

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # else torch imports all of dynamo at the first operator

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if torch.Tag.nondeterministic_seeded in func.tags:
            self.drawn.add(f"aten.{func._schema.name.removeprefix('aten::')}")
            self._seed += 1
            torch.default_generator.manual_seed(self._seed)
            kwargs |= {"generator": None} if "generator" in kwargs else {}
        return func(*args, **kwargs)


def _alike(first: RawOutput, second: RawOutput) -> bool:
    """Whether two runs agree, up to rounding."""
    if not isinstance(first, torch.Tensor) or not isinstance(second, torch.Tensor):
        return repr(first) == repr(second)  # NaN equals NaN
    if first.shape != second.shape or first.dtype != second.dtype:
        return False
    if not (first.is_floating_point() or first.is_complex()):
        return torch.equal(first, second)
    wide = first.to(torch.complex128 if first.is_complex() else torch.float64)
    finite = wide.abs()[wide.isfinite()]
    least = ALIKE * float(finite.mean()) if finite.numel() else 0.0
    return torch.allclose(wide, second.to(wide.dtype), rtol=ALIKE, atol=least, equal_nan=True)
