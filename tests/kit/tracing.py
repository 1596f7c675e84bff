"""The operators that a call runs on meta tensors, as the cost model sees them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from drkernel.sim.cost.traced import TracedCall
from drkernel.sim.module_cost import OperatorTracer


def trace(call: Callable[[], Any]) -> list[TracedCall]:
    """Every operator that ``call`` runs, in order."""
    calls: list[TracedCall] = []
    with torch.no_grad(), OperatorTracer(calls.append):
        call()
    return calls
