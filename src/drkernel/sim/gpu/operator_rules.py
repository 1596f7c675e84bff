"""The rules by which the device runs ATen operators, and the normal form of a call. Host code is hostile.

:func:`rule_of` refuses, by name, operators that are not on the lists of ``operator_lists.py``.
:meth:`OperatorRule.normal` brings a call into the form that checks and prices read: every positional argument of the
schema in its place, with defaults filled in, whether it was given by position or by name.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch

from drkernel.sim.gpu.emulated import EMULATED
from drkernel.sim.gpu.half_precision import as_on_cuda
from drkernel.sim.gpu.operator_lists import (
    ALLOCATORS,
    BY_FORM,
    FACTORIES,
    FREE_OPERATORS,
    INTERNAL,
    LIBRARY_CALLS,
    METADATA_OPERATORS,
    PUBLIC,
    SIZED_BY_DATA,
    names,
)
from drkernel.sim.wire.commands import UnsupportedOp

__all__ = ["ALLOCATORS", "FREE_OPERATORS", "METADATA_OPERATORS", "OperatorRule", "names", "rule_of"]

_COMPOSITE = torch._C.DispatchKey.CompositeImplicitAutograd
_MISSING = object()


@dataclass(frozen=True)
class OperatorRule:
    """How the device runs one overload."""

    call: Any
    """the overload, or its replacement if the CPU build lacks it"""
    base: str
    label: str
    """its name in the census: ``"aten.add"`` """
    parameters: tuple[tuple[str, Any], ...]
    """positional parameters: name, and default or a marker that there is none"""
    options: frozenset[str]
    """parameters that go by name only"""
    allocates: bool
    makes_from_size: bool
    only_metadata: bool
    """whether it only reads or changes the form of a tensor"""
    by_form: bool
    """whether it makes a new tensor, of its arguments' forms alone"""
    draws: bool
    """whether it uses random numbers"""
    takes_generator: bool
    takes_device: bool
    """whether it may be given a device for its result"""
    sized_by_data: bool
    """whether its result's shape may depend on values"""
    written: frozenset[int | str]
    """arguments that it writes to: positions, and names of keyword arguments"""
    out_variant: bool
    """whether it writes its results to an argument without reading it"""

    def normal(self, args: list[Any], kwargs: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        """Return the call with every positional parameter in its place, and only keyword-only options by name.

        Raises :class:`UnsupportedOp` for arguments that do not fit the schema, or that name a device or a layout.
        """
        if len(args) > len(self.parameters):
            raise UnsupportedOp(f"{self.label} takes {len(self.parameters)} positional arguments, not {len(args)}")
        full = list(args)
        left = dict(kwargs)
        for index, (name, default) in enumerate(self.parameters):
            if index < len(args):
                if name in left:
                    raise UnsupportedOp(f"{self.label} was given its argument {name!r} twice")
                continue
            value = left.pop(name, default)
            if value is _MISSING:
                raise UnsupportedOp(f"{self.label} was not given its argument {name!r}")
            full.append(value)
        options = {name: value for name, value in left.items() if value is not None}
        for name in options:
            known = name in self.options or (name == "generator" and self.draws)
            if not known or name in ("device", "pin_memory"):
                raise UnsupportedOp(f"{self.label} takes no argument {name!r} on the simulated device")
        return full, options


def by_name(argument: Any) -> bool:
    """Whether a parameter of a schema is given by name only. Generators are, here, wherever the schema has them."""
    return argument.kwarg_only or argument.name == "generator"


@lru_cache(maxsize=4096)
def rule_of(name: str) -> OperatorRule:
    """The rule of ``"add.Tensor"``; raises :class:`UnsupportedOp` that names what is not offered."""
    base, _, overload = name.partition(".")
    public = base if base in PUBLIC else base.removesuffix("_")
    if public not in PUBLIC and base not in INTERNAL and name not in LIBRARY_CALLS:
        raise UnsupportedOp(f"operator aten::{base} is not offered on the simulated device")
    try:
        call = getattr(getattr(torch.ops.aten, base), overload or "default")
        schema = call._schema
        composite = torch._C._dispatch_has_kernel_for_dispatch_key(call.name(), _COMPOSITE)
    except (AttributeError, RuntimeError) as error:
        raise UnsupportedOp(f"there is no operator aten::{name}") from error
    if composite and name not in LIBRARY_CALLS:
        raise UnsupportedOp(f"operator aten::{name} is composite: the host takes it apart, the device runs its parts")
    written = frozenset(
        argument.name if by_name(argument) else index
        for index, argument in enumerate(schema.arguments)
        if argument.alias_info is not None and argument.alias_info.is_write
    )
    return OperatorRule(
        call=EMULATED.get(name.removesuffix(".default")) or as_on_cuda(base, call),
        base=base,
        label=f"aten.{base}",
        parameters=tuple(
            (argument.name, argument.default_value if argument.has_default_value() else _MISSING)
            for argument in schema.arguments
            if not by_name(argument)
        ),
        options=frozenset(argument.name for argument in schema.arguments if by_name(argument)),
        allocates=base in ALLOCATORS and not written,
        makes_from_size=base in FACTORIES,
        only_metadata=base in METADATA_OPERATORS,
        by_form=base in BY_FORM and not written,
        draws=torch.Tag.nondeterministic_seeded in call.tags,
        takes_generator=any(argument.name == "generator" for argument in schema.arguments),
        takes_device=any(argument.name == "device" for argument in schema.arguments),
        sized_by_data=base in SIZED_BY_DATA,
        written=written,
        out_variant=any(argument.is_out for argument in schema.arguments),
    )
