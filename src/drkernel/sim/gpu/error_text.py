"""Removes contents from operators' error messages.

PyTorch puts values into some messages ("index 5 is out of bounds", "found 3 probabilities below 0"), through which a
host could read the device without a copy. A number stays in a message only if the caller knew it: sizes, strides,
numbers among the arguments.
"""

from __future__ import annotations

import re
from typing import Any

import torch

MAX_MESSAGE = 2000
_NUMBER = re.compile(r"(?<![A-Za-z_])[-+]?(?:\d+(?:\.\d+)?(?:[eE][-+]?\d+)?|nan|inf)\b")
_COMMON = frozenset(str(number) for number in range(10))
"""digits that messages use for dimensions and counts of arguments; a value may hide behind one, for 8 bytes' charge"""


def without_values(message: str, args: list[Any], options: dict[str, Any]) -> str:
    """``message`` with numbers that the caller did not know replaced by ``?``."""
    known = set(_COMMON)
    for value in (*args, *options.values()):
        _collect(value, known)
    text = _NUMBER.sub(lambda found: found[0] if found[0].lstrip("+") in known else "?", message)
    return text[:MAX_MESSAGE]


def _collect(value: Any, known: set[str]) -> None:
    if isinstance(value, torch.Tensor):
        known.update(map(str, (*value.shape, *value.stride(), value.dim(), value.numel())))
    elif isinstance(value, (list, tuple)):
        known.add(str(len(value)))
        for item in value:
            _collect(item, known)
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        known.update((str(value), f"{value:g}"))
