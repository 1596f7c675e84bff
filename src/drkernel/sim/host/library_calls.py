"""Functions that PyTorch's CUDA build runs as one library call, but that decompose on other tensors.

These are recurrent layers (cuDNN), fused attention, dropout and RMS norm, and gradients with a kernel of their own. If
a simulated device or a tracer saw their hundreds of small operators instead, eager PyTorch would look far slower than
it is, and every candidate better.

Kernels for the GPU that host code registers in Python, with ``Library.impl(..., "CUDA")``.

They run through PyTorch's dispatcher, which on a GPU hands ``x - 2.5`` to them with the number as it is. It arrives
here as a number, too, and redispatching refuses one in place of a tensor: with such operands they are called directly.
"""

import functools
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch

from drkernel.sim.gpu.datafree import RECURRENT
from drkernel.sim.gpu.shapes import tensors_in
from drkernel.sim.host.tensor import DeviceTensor
from drkernel.sim.wire.commands import UnsupportedOp

OWN_KERNELS = ("silu_backward", "mish_backward")
"""operators that CPU and CUDA have kernels for and everything else takes apart"""
RECORDED = ("scaled_dot_product_attention", "rms_norm")
"""operators whose gradients have a kernel of their own, too"""
_RMS_NORM = torch.ops.aten._fused_rms_norm.default
_RMS_NORM_BACKWARD = torch.ops.aten._fused_rms_norm_backward.default
FUSED_ATTENTION = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default
_ATTENTION_BACKWARD = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward.default


class LibraryCalls:
    """Replacements under which those functions arrive as one operator each.

    ``applies`` decides whether a tensor (the function's first) is ours; ``run`` executes one ATen overload on
    positional and keyword arguments. Calls that record gradients, of attention and RMS norm apart, and forms that the
    operators do not support, take their usual path.
    """

    def __init__(self, applies: Callable[[torch.Tensor], bool], run: Callable[[Any, tuple, dict[str, Any]], Any]):
        self.applies = applies
        self.run = run

    def stand_ins(self) -> dict[str, Callable[..., Any]]:
        """Map each operator to its replacement, which returns ``NotImplemented`` when the call must take its usual
        path."""
        named: dict[str, Callable[..., Any]] = {
            **{f"{kind}.input": partial(self._recurrent, kind) for kind in RECURRENT},
            **{name: partial(self._as_it_is, getattr(torch.ops.aten, name).default) for name in OWN_KERNELS},
            "dropout": self._dropout, "scaled_dot_product_attention": self._attention, "rms_norm": self._rms_norm,
        }  # fmt: skip
        return {name: partial(self._if_ours, name in RECORDED, stand_in) for name, stand_in in named.items()}

    def _if_ours(self, gradients: bool, stand_in: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        ours = bool(args) and isinstance(args[0], torch.Tensor) and self.applies(args[0])
        return stand_in(*args, **kwargs) if ours and (gradients or not records(args)) else NotImplemented

    def _recurrent(self, kind: str, *args: Any) -> Any:
        if len(args) != 9:  # packed sequences
            return NotImplemented
        return self.run(getattr(torch.ops.aten, kind).input, args, {})

    def _dropout(self, x: torch.Tensor, p: float, train: bool) -> Any:
        if not train or not 0 < p < 1:
            return NotImplemented
        return self.run(torch.ops.aten.native_dropout.default, (x, p, train), {})[0]

    def _as_it_is(self, overload: Any, *args: Any, **kwargs: Any) -> Any:
        return self.run(overload, args, kwargs)

    def _rms_norm(
        self, x: torch.Tensor, normalized_shape: Sequence[int], weight: torch.Tensor | None = None,
        eps: float | None = None,
    ) -> Any:  # fmt: skip
        shape = list(normalized_shape)
        fits = weight is None or (weight.dtype == x.dtype and list(weight.shape) == shape)
        if not (fits and shape and list(x.shape[-len(shape) :]) == shape):
            return NotImplemented  # the fused kernel takes one dtype, here as on a GPU; shapes are refused there

        def forward(x: torch.Tensor, weight: Any) -> Any:
            out, scale = self.run(_RMS_NORM, (x, shape, weight, eps), {})
            return out, (x, weight, scale)

        def backward(wanted: list[bool], gradient: torch.Tensor, x: torch.Tensor, weight: Any, scale: Any) -> Any:
            return self.run(_RMS_NORM_BACKWARD, (gradient, x, shape, scale, weight, wanted), {})

        return _WithGradient.apply(forward, backward, x, weight)

    def _attention(
        self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, attn_mask: torch.Tensor | None = None,
        dropout_p: float = 0.0, is_causal: bool = False, scale: float | None = None, enable_gqa: bool = False,
    ) -> Any:  # fmt: skip
        if dropout_p or records([attn_mask]) or not fits_fused_attention(query, key, value, attn_mask, enable_gqa):
            return NotImplemented
        if attn_mask is not None and attn_mask.dtype == torch.bool:
            attn_mask = torch.zeros_like(attn_mask, dtype=query.dtype).masked_fill_(attn_mask.logical_not(), -torch.inf)
        options = {"attn_mask": attn_mask, "scale": scale}

        def forward(*operands: torch.Tensor) -> Any:
            out, sums = self.run(FUSED_ATTENTION, (*operands, dropout_p, is_causal), options)
            return out, (*operands, out, sums)

        def backward(wanted: list[bool], gradient: torch.Tensor, *saved: torch.Tensor) -> Any:
            return self.run(_ATTENTION_BACKWARD, (gradient, *saved, dropout_p, is_causal), options)

        return _WithGradient.apply(forward, backward, query, key, value)


def attention_kernels(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: Any = None, shared_heads: bool = False
) -> set[str]:
    """Which of "flash", "mem_efficient" and "cudnn" take these operands, here as on a GPU: four dimensions, one batch
    and head size, whole rows, nothing empty, no fp64; halves where heads share keys; a mask of two or four dimensions.
    """
    operands = (query, key, value)
    fits = [x.dim() for x in operands] == [4] * 3 and len({(x.shape[0], x.shape[-1]) for x in operands}) == 1
    fits = fits and key.shape == value.shape and query.numel() > 0 and key.numel() > 0
    fits = fits and (mask is None or (mask.dim() in (2, 4) and mask.dtype in (torch.bool, query.dtype)))
    shared = fits and query.shape[1] != key.shape[1]
    if not fits or (shared and not shared_heads) or any(x.stride(-1) != 1 for x in operands):
        return set()
    halves = {"cudnn"} if mask is not None else {"cudnn", "flash"}
    kernels = set() if query.dtype in (torch.float32, torch.float64) else halves
    return kernels if shared or query.dtype == torch.float64 else {"mem_efficient", *kernels}


def fits_fused_attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: Any = None, shared_heads: bool = False
) -> bool:
    """Whether a fused kernel that is allowed takes these operands. Raises ``RuntimeError`` where nothing else is
    allowed."""
    kernels = attention_kernels(query, key, value, mask, shared_heads)
    if any(getattr(torch.backends.cuda, f"{kernel}_sdp_enabled")() for kernel in kernels):
        return True
    if not torch.backends.cuda.math_sdp_enabled():
        raise RuntimeError("No available kernel. Aborting execution.")
    return False


def takes_attention(kernel: str) -> Callable[..., bool]:
    """``torch.backends.cuda.can_use_flash_attention`` and its like."""
    return lambda p, debug=False: (
        isinstance(p.query, DeviceTensor)
        and getattr(torch.backends.cuda, f"{kernel}_sdp_enabled")()
        and kernel in attention_kernels(p.query, p.key, p.value, p.attn_mask, p.enable_gqa)
    )


_ROWS = 32
"""the memory-efficient kernel's sums come in blocks of so many rows"""


def named_attention(run: Callable[..., Any], func: Any, *args: Any, scale: float | None = None) -> Any:
    """Run ``aten._scaled_dot_product_flash_attention``, its like of other kernels, or the gradients of one: results as
    on a GPU, values of the one fused operator. Autograd has their derivatives."""
    given = dict(zip((one.name for one in func._schema.arguments), args, strict=False))
    kernel = next(name for name in ("flash", "efficient", "cudnn") if name in func._opname)
    bias, operands = given.get("attn_bias"), (given["query"], given["key"], given["value"])
    how = (given.get("dropout_p", 0.0), given.get("is_causal", False))
    if how[0]:
        raise UnsupportedOp(f"{func.name()} with dropout is not offered on the simulated device")
    if kernel.replace("eff", "mem_eff") not in attention_kernels(*operands, bias, shared_heads=True):
        raise RuntimeError(f"{func.name()} does not take these operands: {operands[0].dtype}, {[*operands[0].shape]}")
    rows, options = operands[0].shape[2], {"attn_mask": bias, "scale": scale}
    if func._opname.endswith("_backward"):
        if kernel == "efficient" and given["grad_input_mask"][3]:
            raise UnsupportedOp(f"{func.name()} of a bias is not offered on the simulated device")
        sums = given["logsumexp"].flatten(2)[..., :rows]
        gradients = run(_ATTENTION_BACKWARD, (args[0], *operands, given["out"], sums, *how), options)
        return (*gradients, None) if kernel == "efficient" else gradients
    out, sums = run(FUSED_ATTENTION, (*operands, *how), options)
    seed, offset, debug = (out.new_zeros(size, dtype=torch.int64) for size in ((), (), (0,)))
    if kernel == "efficient":
        missing = -rows % _ROWS if given["compute_log_sumexp"] else -rows
        return out, torch.nn.functional.pad(sums, (0, missing), value=torch.inf), seed, offset
    sums = sums.unsqueeze(-1) if kernel == "cudnn" else sums
    return out, sums, None, None, rows, operands[1].shape[2], seed, offset, debug


NAMED_ATTENTION = {
    getattr(torch.ops.aten, f"_scaled_dot_product_{kernel}_attention{end}").default
    for kernel in ("flash", "efficient", "cudnn")
    for end in ("", "_backward")
}
"""the kernels of attention by their own names"""


class _WithGradient(torch.autograd.Function):
    """An operator of CUDA builds that has a derivative there: ``forward(*inputs)`` gives its result and what it saves,
    ``backward(wanted, gradient, *saved)`` the gradients of its inputs."""

    @staticmethod
    def forward(ctx: Any, forward: Callable[..., Any], backward: Callable[..., Any], *inputs: Any) -> torch.Tensor:
        """Run the operator."""
        out, saved = forward(*inputs)
        ctx.save_for_backward(*saved)
        ctx.of_inputs = backward
        return out

    @staticmethod
    @torch.autograd.function.once_differentiable  # else a second derivative would lack what comes through here
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        """Run its derivative."""
        wanted = list(ctx.needs_input_grad[2:])
        return None, None, *ctx.of_inputs(wanted, gradients[0], *ctx.saved_tensors)


def records(args: Sequence[Any]) -> bool:
    """Return whether autograd would record the call."""
    if not torch.is_grad_enabled():
        return False
    flat = [item for value in args for item in (value if isinstance(value, (list, tuple)) else [value])]
    return any(isinstance(item, torch.Tensor) and item.requires_grad for item in flat)


ON_CUDA = torch._C.DispatchKeySet(torch._C.DispatchKey.CUDA)
OF_PYTORCH = torch._C.DispatchKeySet(torch._C.DispatchKey.CompositeExplicitAutograd)
_functions: dict[str, Callable[..., Any]] = {}
"""by the entries of ``torch.library``; those registered while a device was there"""
_registry = getattr(getattr(torch, "_native", None), "registry", None)
_OF_TORCH = {f"aten/{name}/{key}" for name, key in getattr(_registry, "_aten_override_libs", ())}
"""those of kernels that a CUDA build of PyTorch registers for itself: no user's, and they need a real GPU"""


def impl_on(original: Callable[..., None]) -> Callable[..., None]:
    """Return ``torch.library.Library.impl`` that remembers the functions."""

    @functools.wraps(original)
    def impl(self: Any, op_name: Any, fn: Any, dispatch_key: str = "", **options: Any) -> None:
        original(self, op_name, fn, dispatch_key, **options)
        name = op_name if isinstance(op_name, str) else op_name.name()
        if callable(fn) and fn is not torch.library.fallthrough_kernel and not options.get("with_keyset"):
            _functions[f"{self.ns}/{name.rpartition('::')[2]}/{dispatch_key or self.dispatch_key}"] = fn

    return impl


def redispatch_on(original: Callable[..., Any], run: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``OpOverload.redispatch`` by which a library's kernel reaches the device where it falls back on PyTorch's
    own: C++ would take tensors on it for those of meta, and write nothing."""

    def redispatch(func: Any, keys: Any, *args: Any, **kwargs: Any) -> Any:
        if keys == OF_PYTORCH and any(isinstance(one, DeviceTensor) for one in tensors_in([*args, *kwargs.values()])):
            return run(func, args, kwargs)
        return original(func, keys, *args, **kwargs)

    return redispatch


def registered_kernel(func: Any) -> Callable[..., Any] | None:
    """Return what runs an operator on the GPU, if Python code registered a kernel for it."""
    entries = _entries(func) & torch.library._impls
    if not (entries & _functions.keys() or entries - _OF_TORCH):
        return None
    functions = [_functions[entry] for entry in entries if entry in _functions]

    def run(*args: Any, **kwargs: Any) -> Any:
        if functions and any(isinstance(args[place], (int, float, complex)) for place in _tensors(func, len(args))):
            return functions[0](*args, **kwargs)
        return func.redispatch(ON_CUDA, *args, **kwargs)

    return run


@functools.lru_cache(maxsize=4096)
def _entries(func: Any) -> frozenset[str]:
    """The entries of ``torch.library`` that say that Python code has a kernel for an operator on the GPU."""
    namespace, _, rest = func.name().partition("::")
    keys = ("CUDA",) if namespace == "aten" else ("CUDA", "CompositeExplicitAutograd")
    return frozenset(f"{namespace}/{rest}/{key}" for key in keys)


@functools.lru_cache(maxsize=4096)
def _tensors(func: Any, count: int) -> tuple[int, ...]:
    """The places, among the first ``count`` arguments, at which an operator takes a tensor."""
    return tuple(k for k, one in enumerate(func._schema.arguments[:count]) if str(one.type) == "Tensor")
