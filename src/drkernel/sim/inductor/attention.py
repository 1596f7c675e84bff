"""Keeps fused attention one library call in graphs for the simulated GPU.

A CUDA build of PyTorch hands ``scaled_dot_product_attention`` to a fused kernel; a CPU build takes it apart on CUDA
tensors, so that a compiled module would appear to write the whole score matrix.
"""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch.fx import GraphModule, Node

from drkernel.sim.host.library_calls import FUSED_ATTENTION, fits_fused_attention

_NAMES = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")
_CALLS = (torch.nn.functional.scaled_dot_product_attention, torch._C._nn.scaled_dot_product_attention)


def keep_attention(module: GraphModule) -> None:
    """Replace attention in a traced graph by the fused operator, where it fits that operator."""
    for node in list(module.graph.nodes):
        if node.op == "call_function" and node.target in _CALLS:
            given = {**dict(zip(_NAMES, node.args, strict=False)), **node.kwargs}
            if _fits(given):
                _replace(module, node, given)
    module.recompile()


def _fits(given: dict[str, Any]) -> bool:
    operands = [_tensor(given[name]) for name in _NAMES[:3]]
    mask = _tensor(given.get("attn_mask"))
    if any(operand is None for operand in operands) or (mask is not None and mask.dtype == torch.bool):
        return False
    return not given.get("dropout_p") and not given.get("enable_gqa") and fits_fused_attention(*operands)


def _tensor(value: Any) -> Any:
    return value.meta.get("example_value") if isinstance(value, Node) else None


def _replace(module: GraphModule, node: Node, given: dict[str, Any]) -> None:
    options = {"attn_mask": given.get("attn_mask"), "scale": given.get("scale")}
    arguments = (*(given[name] for name in _NAMES[:3]), 0.0, given.get("is_causal", False))
    with module.graph.inserting_before(node):
        both = module.graph.call_function(FUSED_ATTENTION, arguments, options)
        first = module.graph.call_function(operator.getitem, (both, 0))
    node.replace_all_uses_with(first)
    module.graph.erase_node(node)
