"""Puts the arguments of an ATen operator in the order of its schema, however they were given.

A price must not depend on whether an argument was passed by position or by keyword. Operators are therefore recorded
with ordered arguments, and the families of the model read them by name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of an operator's schema."""

    name: str
    default: Any
    result: bool
    """whether it is only written (``out=`` and similar), so that its contents are not read"""


@lru_cache(maxsize=4096)
def signature(name: str) -> tuple[Parameter, ...]:
    """Return the parameters of ``"add.Tensor"`` in order; none for an operator that torch does not have."""
    base, _, overload = name.removeprefix("aten::").removeprefix("aten.").partition(".")
    packet = getattr(torch.ops.aten, base, None)
    call = getattr(packet, overload or "default", None)
    if call is None:
        return ()
    return tuple(
        Parameter(
            argument.name,
            argument.default_value,
            bool(argument.kwarg_only and argument.alias_info is not None and argument.alias_info.is_write),
        )
        for argument in call._schema.arguments
    )


def in_order(name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
    """Return all arguments in the schema's order, defaults filled in (None if there is neither value nor default).

    Keywords that the schema does not have come last.
    """
    if not kwargs:
        return list(args)
    parameters = signature(name)
    values = list(args)
    values += [kwargs.get(parameter.name, parameter.default) for parameter in parameters[len(args) :]]
    known = {parameter.name for parameter in parameters}
    return values + [value for key, value in kwargs.items() if key not in known]


def read_only(name: str, values: Sequence[Any]) -> list[Any]:
    """Return those of the ordered arguments whose contents the operator may read."""
    parameters = signature(name)
    return [value for k, value in enumerate(values) if k >= len(parameters) or not parameters[k].result]


def by_name(name: str, values: Sequence[Any]) -> dict[str, Any]:
    """Return ordered arguments as a mapping, with the schema's defaults for omitted ones."""
    parameters = signature(name)
    given = {parameter.name: value for parameter, value in zip(parameters, values, strict=False)}
    for parameter in parameters[len(values) :]:
        given[parameter.name] = parameter.default
    return given
