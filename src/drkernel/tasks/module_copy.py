"""Independent copies of modules."""

from __future__ import annotations

import copy
import types
from typing import Any

from torch import nn


def copied(model: nn.Module, *, same_parameters: bool = False) -> nn.Module:
    """Return a deep copy of ``model`` whose functions also use the copy; ``same_parameters``: with the original's.

    ``copy.deepcopy`` shares functions, so a module that keeps ``lambda x: inner(x)`` in an attribute would go on using
    the original's ``inner``. Here, functions in attributes are rebuilt over the copies of what they hold.
    """
    memo: dict[int, Any] = {id(one): one for one in model.parameters()} if same_parameters else {}
    fresh = copy.deepcopy(model, memo)
    for module in fresh.modules():
        for name, value in list(vars(module).items()):
            if isinstance(value, types.FunctionType) and value.__closure__:
                vars(module)[name] = _rebound(value, memo)
    return fresh


def _rebound(function: types.FunctionType, memo: dict[int, Any]) -> types.FunctionType:
    """Return the function with each copied object of its closure replaced by the copy."""
    cells = function.__closure__ or ()
    if not any(id(cell.cell_contents) in memo for cell in cells if _filled(cell)):
        return function
    held = tuple(
        types.CellType(memo.get(id(cell.cell_contents), cell.cell_contents)) if _filled(cell) else cell
        for cell in cells
    )
    fresh = types.FunctionType(function.__code__, function.__globals__, function.__name__, function.__defaults__, held)
    fresh.__kwdefaults__ = function.__kwdefaults__
    return fresh


def _filled(cell: types.CellType) -> bool:
    """Return whether a closure cell holds a value yet."""
    try:
        cell.cell_contents  # noqa: B018 (asking is the point)
    except ValueError:
        return False
    return True
