"""The share of a reference's results that its masks keep: a kernel may skip the rest, but no more."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from drkernel.tasks.promote import cloned
from drkernel.tasks.reference import load_reference

HALF = 0.5
"""about the share that a causal mask keeps; the lower bound, and the value when discarded elements cannot be
determined"""
NEVER = -1e4
"""a score with this added gets weight 0, or less"""
_PARTS = ("tril", "triu", "index", "gather", "diag", "masked_s")
"""operators whose result may be the mask or the remaining values: their shares say nothing"""


@lru_cache(maxsize=256)
def live_share(source: str) -> float:
    """Return the least share of elements that a masking operator of a reference keeps, on inputs as it draws them.

    Run on data, so for sizes that can be executed; at larger ones a mask of the same kind keeps about as much.
    """
    reference = load_reference(source)
    masks = _Masks()
    try:
        model, inputs = reference.build(0), reference.draw_inputs(0)
        with torch.no_grad(), masks:
            model(*cloned(inputs))
    except Exception:  # a reference may raise anything
        return HALF
    return max(HALF, masks.least)


class _Masks(TorchDispatchMode):
    """Records the share of elements that masking operators keep."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.least = 1.0

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # else torch imports all of dynamo at the first operator

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        self.least = min(self.least, _kept(func._schema.name.removeprefix("aten::"), args, kwargs))
        return func(*args, **kwargs)


def _kept(name: str, args: Any, kwargs: dict[str, Any]) -> float:
    """Share of computed elements that an operator keeps; 1 for one that masks nothing."""
    if name.startswith("masked_fill"):
        return 1.0 - _share(args[1])
    if name.startswith("where"):
        kept, share = [isinstance(one, torch.Tensor) and one.numel() > 1 for one in args[1:]], _share(args[0])
        if not any(kept):  # two numbers make a mask that is added to scores
            kept = [float(one) > NEVER for one in args[1:]]
        return share if kept == [True, False] else 1.0 - share if kept == [False, True] else HALF
    if name.startswith("_scaled_dot_product"):
        mask = kwargs.get("attn_mask")
        causal = HALF if any(value is True for value in (*args, *kwargs.values())) else 1.0
        return causal if mask is None else min(causal, _share(mask if mask.dtype == torch.bool else mask > NEVER))
    return HALF if name.startswith(_PARTS) else 1.0


def _share(mask: torch.Tensor) -> float:
    return float(mask.to(torch.float64).mean()) if mask.numel() else 1.0
