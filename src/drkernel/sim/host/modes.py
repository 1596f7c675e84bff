"""The two modes that make unmodified host code use the simulated GPU.

:class:`DeviceArgumentMode` rewrites ``device="cuda"`` and similar arguments on their way into torch;
:class:`OperatorMode` receives every ATen operator below autograd and forwards those that involve the device.

Pinned host memory, which kernels of a GPU can address, too.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import lru_cache, partial
from numbers import Number
from types import FunctionType
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.nn.functional import embedding_bag, multi_head_attention_forward
from torch.nn.parameter import is_lazy
from torch.overrides import TorchFunctionMode, _get_current_function_mode_stack
from torch.utils._device import DeviceContext, _device_constructors
from torch.utils._python_dispatch import _pop_mode_temporarily
from torch.utils._pytree import tree_map

from drkernel.base.modes import DispatchMode
from drkernel.sim.gpu.operator_rules import is_composite
from drkernel.sim.gpu.shapes import bare
from drkernel.sim.host.library_calls import NAMED_ATTENTION, named_attention, records, registered_kernel
from drkernel.sim.host.tensor import CUDA, META, DeviceLink, DeviceTensor, faked, faking, for_device, told, traced
from drkernel.sim.wire.commands import GeneratorRef, UnsupportedOp

_pinned: dict[int, StorageWeakRef] = {}
"""by address: views of pinned memory are pinned, too"""


def pin(tensor: torch.Tensor) -> torch.Tensor:
    """Note that a host tensor's memory is pinned; copies from there cost the same here."""
    for address in [address for address, storage in _pinned.items() if storage.expired()]:
        del _pinned[address]
    storage = tensor.untyped_storage()
    _pinned[storage.data_ptr()] = StorageWeakRef(storage)
    return tensor


def is_pinned(tensor: Any) -> bool:
    """Whether a tensor lies in pinned host memory."""
    if not _pinned or type(tensor) is not torch.Tensor:
        return False
    storage = _pinned.get(tensor.untyped_storage().data_ptr())
    return storage is not None and not storage.expired()


class MappedHost:
    """The pinned host memory of one launch: it goes to the device before, and comes back after."""

    def __init__(self, link: DeviceLink):
        self._link = link
        self._sent: dict[int, tuple[torch.Tensor, DeviceTensor]] = {}
        self._arguments: list[torch.Tensor] = []  # a launch names them by handles alone

    def on_device(self, value: Any) -> Any:
        """The argument itself, or for a pinned tensor one of the same form on the device."""
        if not is_pinned(value):
            return value
        address = value.untyped_storage().data_ptr()
        with torch.no_grad():
            if address not in self._sent:
                whole = torch.empty(0, dtype=torch.uint8).set_(value.untyped_storage())
                self._sent[address] = whole, self._link.upload(whole)
            elements = self._sent[address][1].view(value.dtype)
            self._arguments.append(elements.as_strided(value.shape, value.stride(), value.storage_offset()))
        return self._arguments[-1]

    def write_back(self) -> None:
        """Copy what the launch may have written to the host."""
        for host, device in self._sent.values():
            host.copy_(device)


DispatchKey, TRACER = torch._C.DispatchKey, torch._C._TorchDispatchModeKey.PROXY
_ZEROS_WITHOUT_MEMORY = torch.ops.aten._efficientzerotensor.default
LEGACY_TYPES = {
    name: getattr(torch, f"{name}Tensor").dtype
    for name in ("Half", "BFloat16", "Float", "Double", "Char", "Byte", "Short", "Int", "Long", "Bool")
}
_plain_meta = threading.local()
"""``.depth`` > 0 while host code makes meta tensors of its own"""


class OperatorMode(DispatchMode):
    """Forwards operators on device tensors, and those that ask for the device: factories and uploads."""

    supports_higher_order_operators = True

    def __init__(self, link: DeviceLink):
        super().__init__()
        self.link = link

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is _ZEROS_WITHOUT_MEMORY:  # torch adds to these on meta, which is the device here
            func = torch.ops.aten.zeros.default
        plain = getattr(_plain_meta, "depth", 0) > 0
        if faking() and not plain:
            return faked(func, args, kwargs)
        if torch._C._get_dispatch_mode(TRACER) is not None:
            with _pop_mode_temporarily(TRACER) as tracer, self:  # type: ignore[arg-type]
                return traced(tracer, func, types, args, kwargs)
        if isinstance(func, torch._ops.HigherOrderOperator):
            eager = func.py_kernels.get(DispatchKey.CompositeExplicitAutograd)
            if eager is None:
                raise UnsupportedOp(f"operator {func.name()} is not offered on the simulated device")
            with DeviceArgumentMode(self.link), self:
                if func.name() == "cond":  # whose own kernel refuses to run inside of a mode
                    return args[1 if args[0] else 2](*args[3])
                return eager(*args, **kwargs)
        on_device = [issubclass(kind, DeviceTensor) for kind in types]
        if not any(on_device) and (plain or not _names_device(args, kwargs)):
            if not types:
                pinned = kwargs.pop("pin_memory", False)
                return pin(func(*args, **kwargs)) if pinned else func(*args, **kwargs)
        elif all(on_device):
            return self._run(func, args, kwargs)
        args, kwargs = tuple(map(told, args)), {key: told(value) for key, value in kwargs.items()}
        for kind, known in zip(types, on_device, strict=True):
            if not known:  # a wrapper, whose own code says what becomes of the tensors in it
                with DeviceArgumentMode(self.link), self:
                    result = kind.__torch_dispatch__(func, types, args, kwargs)
                if result is not NotImplemented:
                    return result
        return func(*args, **kwargs)

    def _run(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        if (answer := _OF_FORMS.get(func)) is not None:
            return answer(*args, **kwargs)
        if func is torch.ops.aten.allclose.default:
            with self:
                return bool(torch.isclose(*args, **kwargs).all().item())  # two operators and a copy, as on a GPU
        if func is torch.ops.aten._pack_padded_sequence.default:  # lengths and the sizes of batches stay on the host
            with self:
                return func._op_dk(DispatchKey.CompositeExplicitAutograd, *args, **kwargs)
        if func in NAMED_ATTENTION:
            with self:
                return named_attention(self.link.dispatch, func, *args, **kwargs)
        if (kernel := _host_kernel(func)) is not None:
            args, kwargs = [told(value) for value in args], {key: told(value) for key, value in kwargs.items()}
            with DeviceArgumentMode(self.link), self:
                return kernel(*args, **kwargs)
        if is_composite(func):  # inference mode does not take composite operators apart
            with self:
                return func.decompose(*args, **kwargs)
        return self.link.dispatch(func, args, kwargs)


_OF_FORMS: dict[Any, Callable[..., bool | None]] = {
    torch.ops.aten.is_same_size.default: lambda one, other: one.shape == other.shape,
    torch.ops.aten.is_pinned.default: lambda *_: False,
    torch.ops.aten._assert_tensor_metadata.default: lambda *_, **__: None,  # of an exported program: as it was traced
}
"""questions about tensors, of any device, that the host answers"""


def _by_way_of_host(func: Any, *args: Any, **kwargs: Any) -> Any:
    """Run a collective of ``torch.distributed`` on copies, as gloo does for tensors on a GPU."""
    copies: dict[int, tuple[torch.Tensor, torch.Tensor, torch.Tensor]] = {}

    def copied(value: Any) -> Any:
        if isinstance(value, DeviceTensor):
            original, value = value, value.detach().cpu()
            copies[id(value)] = original, value, value.clone()
        return value

    result = func(*tree_map(copied, args), **tree_map(copied, kwargs))
    (result[-1] if isinstance(result, tuple) else result).wait()
    for tensor, host, before in copies.values():
        if not torch.equal(host, before):
            tensor.detach().copy_(host)
    return tree_map(lambda value: copies[id(value)][0] if id(value) in copies else value, result)


def default_is_cuda() -> bool:
    """Return whether ``torch.set_default_device`` or ``with torch.device(...)`` has made the GPU this thread's
    default."""
    if torch._C._len_torch_function_stack() == 0:
        return False
    lowest = torch._C._get_function_stack_at(0)  # where it is put, and put back
    return isinstance(lowest, DeviceContext) and lowest.device.type == "cuda"


def _names_device(args: Any, kwargs: dict[str, Any]) -> bool:
    """Return whether an operator is told the device, by name or, like ``aten::to.device``, by position."""
    return any(
        isinstance(value, torch.device) and value.type in ("cuda", "meta") for value in (kwargs.get("device"), *args)
    )


def reinterpret(tensor: torch.Tensor, size: Any, stride: Any, offset: int = 0) -> torch.Tensor:
    """Make a view as TorchInductor's code does, through an operator of its own or directly in C++."""
    return tensor.as_strided(size, stride, tensor.storage_offset() + offset)


def _host_kernel(func: Any) -> Callable[..., Any] | None:
    """Return the host code that runs an operator on the GPU, if libraries registered any.

    It may be an operator of their own (``torch.library.custom_op``, ``Library.impl`` for "CUDA" or for every device),
    or one of PyTorch's for which they registered a kernel: this build has no kernels for CUDA otherwise.
    """
    if func.name() == "inductor::_reinterpret_tensor":
        return reinterpret
    return partial(_by_way_of_host, func) if func.namespace == "c10d" else registered_kernel(func)


@lru_cache(maxsize=1024)
def _has_own_code(kind: type) -> bool:
    """Whether a class of tensors has code of its own around functions."""
    own = kind.__torch_function__  # type: ignore[attr-defined]
    plain = torch.Tensor.__torch_function__.__func__  # type: ignore[attr-defined]
    return own is not DeviceTensor.__torch_function__ and getattr(own, "__func__", own) is not plain


class DeviceArgumentMode(TorchFunctionMode):
    """Rewrites arguments that name the GPU so that torch's CPU build accepts them; :class:`OperatorMode` then forwards
    the call."""

    def __init__(self, link: DeviceLink):
        super().__init__()
        self.link = link

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if default_is_cuda() and func in _device_constructors() and (kwargs or {}).get("device") is None:
            kwargs = {**(kwargs or {}), "device": CUDA}  # its own mode lies below, and is too late
        handler = _HANDLERS.get(func)
        if handler is not None:
            return handler(func, args, dict(kwargs or {}))
        for kind in filter(_has_own_code, types):  # which may name the GPU
            if torch._C._is_torch_function_enabled():
                with self:
                    result = kind.__torch_function__(func, types, args, kwargs or {})
                if result is not NotImplemented:
                    return result
        inside = _INSIDE.get(func)
        if inside is not None:
            with self:
                return inside(*args, **(kwargs or {}))
        if not kwargs:
            return func(*args)
        kwargs = dict(kwargs)
        device = kwargs.get("device")
        if device is not None:
            if is_cuda(device):
                kwargs["device"] = CUDA if faking() else META
            elif _names_meta(device):
                return _on_plain_meta(func, args, kwargs)
        pinned = kwargs.pop("pin_memory", False)
        if pinned and kwargs.get("device") is not META:
            return pin(func(*args, **kwargs))
        if isinstance(kwargs.get("generator"), DeviceGenerator):
            return self._drawing(func, args, kwargs)
        return func(*args, **kwargs)

    def _drawing(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """Run a call that was given a generator of the device."""
        generator = kwargs.pop("generator")
        if kwargs.get("device") is not META and not any(isinstance(value, DeviceTensor) for value in args):
            raise RuntimeError("Expected a 'cpu' device type for generator but found 'cuda'")
        self.link.generator.ref = GeneratorRef(generator.number)
        try:
            return func(*args, **kwargs)
        finally:
            self.link.generator.ref = None


class DeviceGenerator(torch._C.Generator):
    """``torch.Generator(device="cuda")``: identifies a generator of the device, where the drawing happens."""

    number: int
    link: DeviceLink

    def __new__(cls, link: DeviceLink, number: int) -> DeviceGenerator:
        self = super().__new__(cls)
        self.link, self.number = link, number
        return self

    def __init__(self, *args: Any) -> None: ...

    device = property(lambda self: CUDA)  # type: ignore[assignment]

    def manual_seed(self, seed: int) -> DeviceGenerator:
        self.link.channel.generator(self.number, seed=int(seed))
        return self

    def seed(self) -> int:
        seed = int(torch.randint(0, 2**62, (1,)).item())
        self.manual_seed(seed)
        return seed

    def initial_seed(self) -> int:
        return int(self.link.channel.generator(self.number)["seed"])

    def get_state(self) -> torch.Tensor:
        state = bytes.fromhex(self.link.channel.generator(self.number)["state"])
        return torch.frombuffer(bytearray(state), dtype=torch.uint8)

    def set_state(self, state: torch.Tensor) -> None:  # type: ignore[override]
        self.link.channel.generator(self.number, state=bytes(state.tolist()).hex())

    def clone_state(self) -> DeviceGenerator:
        copied = DeviceGenerator(self.link, next(self.link.generator_numbers))
        copied.set_state(self.get_state())
        return copied

    def graphsafe_get_state(self) -> DeviceGenerator:
        return DeviceGenerator(self.link, self.number)  # another name of one state

    def graphsafe_set_state(self, other: DeviceGenerator) -> None:  # type: ignore[override]
        self.number = other.number


def is_cuda(value: Any) -> bool:
    """Return whether an argument names the GPU. Raises as CUDA does for a device that does not exist."""
    index: int | None
    if isinstance(value, torch.device):
        kind, index = value.type, value.index
    elif isinstance(value, str):
        kind, _, rest = value.partition(":")
        index = int(rest) if rest.isdigit() else None
    elif isinstance(value, int) and not isinstance(value, bool):
        kind, index = "cuda", value
    else:
        return False
    if kind == "cuda" and index is not None and index > 0:
        raise RuntimeError(f"CUDA error: invalid device ordinal: there is one device, cuda:0, not cuda:{index}")
    return kind == "cuda"


def _names_meta(value: Any) -> bool:
    """Return whether an argument names PyTorch's device without memory, by itself or by a tensor there."""
    value = value.device if isinstance(value, torch.Tensor) else value
    return isinstance(value, (str, torch.device)) and torch.device(value).type == "meta"


def _on_plain_meta(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """Run a call on meta tensors that host code requested by name; the device is not involved."""
    _plain_meta.depth = getattr(_plain_meta, "depth", 0) + 1
    try:
        return func(*[bare(value) if isinstance(value, DeviceTensor) else value for value in args], **kwargs)
    finally:
        _plain_meta.depth -= 1


def _pin_memory(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    if isinstance(args[0], DeviceTensor):
        raise RuntimeError("cannot pin 'torch.cuda.FloatTensor' only dense CPU tensors can be pinned")
    return args[0] if is_pinned(args[0]) else pin(args[0].clone())


def unless_ours(original: Callable[..., Any], instead: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that does ``instead`` with a device tensor, and ``original`` with anything else."""
    return lambda value, *args, **kw: (instead if isinstance(value, DeviceTensor) else original)(value, *args, **kw)


def _cuda(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    place = args[1] if len(args) > 1 else kwargs.pop("device", None)
    return _to(torch.Tensor.to, (args[0], CUDA if place is None else place), kwargs)


def _to(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    like, device = args[1] if len(args) > 1 else None, kwargs.get("device")
    if _names_meta(like) or _names_meta(device):
        return _on_plain_meta(func, args, kwargs)
    if isinstance(like, DeviceTensor):  # to C++ it looks like a meta tensor
        func, args = torch.Tensor.to, (args[0], META, like.dtype, *args[2:])
    elif is_cuda(like):
        args = (args[0], CUDA if faking() else META, *args[2:])
    elif is_cuda(device):
        kwargs["device"] = CUDA if faking() else META
    else:
        return func(*args, **kwargs)
    if is_lazy(args[0]):
        dtype = next((value for value in (*args, *kwargs.values()) if isinstance(value, torch.dtype)), None)
        return for_device(for_device(args[0]) if dtype is None else func(for_device(args[0]), dtype))
    if type(args[0]) in (torch.Tensor, torch.nn.Parameter) and args[0].is_meta:  # to C++ it would be there already
        raise NotImplementedError("Cannot copy out of meta tensor; no data!")
    return func(*args, **kwargs)


def _type(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """The legacy names: ``x.type()`` and ``x.type("torch.cuda.HalfTensor")``."""
    wanted = args[1] if len(args) > 1 else kwargs.get("dtype")
    if wanted is None and isinstance(args[0], DeviceTensor):
        return func(args[0]).replace("torch.meta.", "torch.cuda.")
    if isinstance(wanted, type) and hasattr(wanted, "legacy_name"):
        wanted = wanted.legacy_name
    if isinstance(wanted, str) and wanted.startswith("torch.cuda."):
        dtype = LEGACY_TYPES[wanted.removeprefix("torch.cuda.").removesuffix("Tensor")]
        return args[0].to(META, dtype)
    return func(*args, **kwargs)


def _from_data(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """``torch.tensor(data, device="cuda")``: built on the host, then copied over."""
    wanted = kwargs.pop("device", None)
    requires_grad = kwargs.pop("requires_grad", None)
    pinned = kwargs.pop("pin_memory", False)
    data = args[0] if args else kwargs.pop("obj" if func is torch.asarray else "data", None)
    on_device = is_cuda(wanted)
    if isinstance(data, (torch.TypedStorage, torch.UntypedStorage)) and data.is_cuda:
        whole: Any = getattr(data, "_untyped_storage", data)
        value = whole.elements(kwargs.get("dtype") or getattr(data, "dtype", torch.int64)).to(wanted)
    elif isinstance(data, DeviceTensor):
        value = data.detach() if func is torch.tensor or requires_grad is False else data
        copy, dtype = kwargs.get("copy"), kwargs.get("dtype") or value.dtype
        if copy is False and (dtype != value.dtype or (wanted is not None and not on_device)):
            raise ValueError(f"can't alias a {value.dtype} tensor of {value.device} as {dtype} of {wanted or 'cuda'}")
        value = value.to(None if on_device else wanted, dtype, copy=func is torch.tensor or bool(copy))
    else:
        data = _with_elements_on_host(data)
        if wanted is not None and not on_device:
            kwargs["device"] = wanted
        if not on_device:
            value = func(data, *args[1:], **kwargs, **({"requires_grad": True} if requires_grad else {}))
            return pin(value) if pinned else value
        with torch._C._DisableFuncTorch():  # plain data: nothing that a transform would follow
            value = func(data, *args[1:], **kwargs, device="cpu")
        value = value.to(META)
    return value.requires_grad_() if requires_grad else value


def _with_elements_on_host(data: Any) -> Any:
    """Copy the device's tensors in (nested) lists to the host, as ``torch.tensor([x[0], x[1]])`` does one by one."""
    if isinstance(data, DeviceTensor):
        return data.cpu()
    if isinstance(data, (list, tuple)) and any(isinstance(value, (DeviceTensor, list, tuple)) for value in data):
        return [_with_elements_on_host(value) for value in data]
    return data


def _new_tensor(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """``x.new_tensor(data)``: like ``torch.tensor`` with the dtype and device of ``x``."""
    like, *rest = args
    if not isinstance(like, DeviceTensor) and not is_cuda(kwargs.get("device")):
        return func(*args, **kwargs)
    options = {"dtype": like.dtype, "device": like.device, **kwargs}
    return _from_data(torch.tensor, tuple(rest), options)


def _new(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """``x.new([1, 2])``, which is data, and ``x.new(1, 2)``, which is a size."""
    first = args[1] if len(args) == 2 else None
    data = isinstance(first, (list, tuple, torch.UntypedStorage)) and not isinstance(first, torch.Size)
    return _new_tensor(func, args, kwargs) if data else func(*args, **kwargs)


def _index(tensor: Any, index: Any, *, alone: bool = True) -> Any:
    """Convert lists among the indices of a device tensor to tensors there; torch would make meta tensors of them."""
    if not isinstance(tensor, DeviceTensor):
        return index
    several = isinstance(index, list) and len(index) < 32 and not all(isinstance(one, Number) for one in index)
    if alone and (several or isinstance(index, tuple)):  # torch takes such a list for a tuple, with a warning
        places = [_index(tensor, item, alone=False) for item in index]
        return tuple(places) if isinstance(index, tuple) else places
    if isinstance(index, (list, tuple, range)) or type(index).__name__ == "ndarray":
        given = torch.as_tensor(list(index) if isinstance(index, range) else index, device="cpu")
        return (given if given.dtype in (torch.bool, torch.uint8) else given.long()).to(META)
    return index


def _set(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """``host.set_(storage)``, which C++ would take for one of its own."""
    if any(getattr(value, "is_cuda", False) for value in args[1:]):
        raise RuntimeError("Attempted to set the storage of a tensor on device cpu to a storage on device cuda:0")
    return func(*args, **kwargs)


def _ctc_loss(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """``torch.ctc_loss``: lengths are numbers to CUDA's kernels, wherever they are, and targets go to the GPU."""
    if isinstance(args[0] if args else kwargs["log_probs"], DeviceTensor):
        args = (*args[:2], *map(_as_numbers, args[2:4]), *args[4:])
        kwargs |= {name: _as_numbers(kwargs[name]) for name in ("input_lengths", "target_lengths") if name in kwargs}
    return func(*args, **kwargs)


def _nests(encoder: Any, src: Any, mask: Any, padding: Any) -> bool:
    """Whether an encoder makes nested tensors on a GPU; here its own code finds a mode in the way, and does not."""
    first = encoder.layers[0]
    if padding is None or mask is not None or src.dim() != 3 or first.training or not encoder.use_nested_tensor:
        return False
    fast = torch.backends.mha.get_fastpath_enabled() and not torch.is_autocast_enabled()
    ours = all(isinstance(mode, DeviceArgumentMode) for mode in _get_current_function_mode_stack())
    if not fast or not ours or records([src, *first.parameters()]):
        return False
    return not encoder.mask_check or bool((padding[:, 1:].bool() >= padding[:, :-1].bool()).all())


def encode_on(original: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """Return ``TransformerEncoder.forward``: where a GPU's uses nested tensors, rows that are padding come to zero."""

    def forward(self: Any, src: Any, mask: Any = None, src_key_padding_mask: Any = None, **kwargs: Any) -> torch.Tensor:
        given = src, mask, src_key_padding_mask
        if not isinstance(src, DeviceTensor) or not _nests(self, *given):
            return original(self, *given, **kwargs)
        norm, self.norm = self.norm, None
        try:
            out = original(self, *given, **kwargs).masked_fill(src_key_padding_mask.bool()[..., None], 0)
        finally:
            self.norm = norm
        return out if norm is None else norm(out)

    return forward


def _as_numbers(value: Any) -> Any:
    return value.tolist() if isinstance(value, torch.Tensor) else value


def _inner(value: Any) -> Any:
    """Return the value that a functorch transform (``torch.func.grad``, ``vmap``) has wrapped."""
    while type(value) is torch.Tensor and torch._C._functorch.is_functorch_wrapped_tensor(value):
        value = torch._C._functorch.get_unwrapped(value)
    return value


def _of_inner(on_device: Any) -> Callable[[Any, Any, dict[str, Any]], Any]:
    """Return a property that is ``on_device`` for device tensors inside a transform, where torch would report
    'meta'."""

    def handler(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        return on_device if isinstance(_inner(args[0]), DeviceTensor) else func(*args, **kwargs)

    return handler


def _unasked(func: Any) -> Any:
    """A Python function of torch that does not ask first which mode takes it."""
    nobody = {name: lambda *values: False for name in func.__globals__ if name.startswith("has_torch_function")}
    return FunctionType(func.__code__, {**func.__globals__, **nobody}, func.__name__, func.__defaults__)


_INSIDE = {
    func: _unasked(func)
    for func in (torch.Tensor.backward, torch.unravel_index, embedding_bag, multi_head_attention_forward)
}
"""Functions in which Python code names the GPU, too (that of the backward pass, for one) -> what runs in the mode."""

_HANDLERS: dict[Any, Callable[[Any, Any, dict[str, Any]], Any]] = {
    torch.Tensor.cuda: _cuda,
    torch.Tensor.to: _to,
    torch.Tensor.type: _type,
    torch.Tensor.type_as: _to,
    torch.Tensor.new: _new,
    torch.Tensor.new_tensor: _new_tensor,
    torch.Tensor.pin_memory: _pin_memory,
    torch.Tensor.is_pinned: lambda func, args, kwargs: is_pinned(args[0]),
    torch.Tensor.__getitem__: lambda func, args, kwargs: func(args[0], _index(args[0], args[1])),
    torch.Tensor.__setitem__: lambda func, args, kwargs: func(args[0], _index(args[0], args[1]), args[2]),
    torch.Tensor.set_: _set,
    torch._has_compatible_shallow_copy_type: lambda func, args, kwargs: True,  # a module's parameters stay the objects
    torch.Tensor.data.__set__: lambda f, args, kw: (  # type: ignore[attr-defined]
        args[1]._link.move(*args) if type(args[1]) is DeviceTensor and type(args[0]) is not DeviceTensor else f(*args)
    ),
    torch.Tensor.device.__get__: _of_inner(CUDA),  # type: ignore[attr-defined]
    torch.Tensor.is_cuda.__get__: _of_inner(True),  # type: ignore[attr-defined]
    torch.Tensor.is_meta.__get__: _of_inner(False),  # type: ignore[attr-defined]
    torch.Tensor.get_device: _of_inner(0),
    torch.ctc_loss: _ctc_loss,
    torch._nested_tensor_from_mask_left_aligned: lambda f, args, kw: False,  # see ``_nests``
    torch.nn.functional.ctc_loss: _ctc_loss,
    torch.device: lambda f, args, kw: f("cuda", *args) if args and isinstance(args[0], int) else f(*args, **kw),
    torch._C._nn._parse_to: lambda f, args, kw: f(  # a number is the GPU's
        *(CUDA if is_cuda(one) else one for one in args), **{k: CUDA if is_cuda(v) else v for k, v in kw.items()}
    ),
    torch.tensor: _from_data,
    torch.as_tensor: _from_data,
    torch.asarray: _from_data,
}
