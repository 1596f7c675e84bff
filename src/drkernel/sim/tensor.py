"""Host-side tensors of the simulated GPU, and the modes that send their operators to the device.

A :class:`DeviceTensor` holds no data: it is a wrapper with shape, stride and dtype whose storage lives on the device,
behind a handle. To PyTorch's C++ it looks like a meta tensor (so no device guard is needed), to Python it reports
``cuda:0``. Two modes make unmodified host code work: one rewrites ``device="cuda"`` on its way into torch, the other
receives every ATen operator below autograd and forwards those that touch the device.
"""

from __future__ import annotations

import threading
import weakref
from functools import partial
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

from drkernel.sim.protocol import Channel, Ref, TensorSpec, UnsupportedOp

CUDA = torch.device("cuda", 0)
META = torch.device("meta")
MIXED_DEVICES = (
    "Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu! "
    "(when checking arguments of {op})"
)


class DeviceTensor(torch.Tensor):
    """A tensor on the simulated GPU."""

    _handle: int
    _address: int
    _link: DeviceLink

    @staticmethod
    def __new__(cls, spec: TensorSpec, link: DeviceLink) -> DeviceTensor:
        tensor = torch.Tensor._make_wrapper_subclass(
            cls, spec.shape, strides=spec.stride, storage_offset=spec.offset, dtype=spec.dtype, device=META
        )
        tensor._handle = spec.handle
        tensor._address = spec.address
        tensor._link = link
        weakref.finalize(tensor, link.release, spec.handle)
        return tensor

    def __init__(self, *args: Any) -> None: ...

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        return CUDA

    @property
    def is_cuda(self) -> bool:  # type: ignore[override]
        return True

    @property
    def is_meta(self) -> bool:  # type: ignore[override]
        return False

    @property
    def is_cpu(self) -> bool:  # type: ignore[override]
        return False

    def get_device(self) -> int:
        return 0

    def data_ptr(self) -> int:
        return self._address

    def is_pinned(self, *args: Any) -> bool:
        return False

    def record_stream(self, stream: Any) -> None: ...

    def numpy(self, *args: Any, **kwargs: Any) -> Any:
        raise TypeError(
            "can't convert cuda:0 device type tensor to numpy. "
            "Use Tensor.cpu() to copy the tensor to host memory first."
        )

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        return self.numpy()

    def tolist(self) -> Any:
        return self.cpu().tolist()

    def __deepcopy__(self, memo: dict) -> torch.Tensor:
        copy: torch.Tensor = self.detach().clone().requires_grad_(self.requires_grad)
        if isinstance(self, torch.nn.Parameter):
            copy = torch.nn.Parameter(copy, self.requires_grad)
        memo[id(self)] = copy
        return copy

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        text = repr(self.detach().cpu())
        return f"{text[:-1]}, device='cuda:0')"

    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        for leaf in _tensors(args, kwargs or {}):
            if isinstance(leaf, DeviceTensor):
                return leaf._link.dispatch(func, args, kwargs or {})
        raise AssertionError("dispatched to a device without a device tensor")


class DeviceLink:
    """The host's end of one device: turns ATen calls into commands and results into :class:`DeviceTensor`."""

    def __init__(self, channel: Channel):
        self.channel = channel
        self._known: weakref.WeakValueDictionary[int, DeviceTensor] = weakref.WeakValueDictionary()
        self._closed = False
        self._lock = threading.RLock()

    def close(self) -> None:
        """Stop sending: tensors that outlive the device are released silently."""
        self._closed = True

    def release(self, handle: int) -> None:
        """Called when the host drops its last reference to a tensor."""
        if not self._closed:
            self.channel.free(handle)

    def wrap(self, spec: TensorSpec) -> DeviceTensor:
        """The host tensor of a device tensor: one object a handle."""
        known = self._known.get(spec.handle)
        if known is not None:
            if known.shape != spec.shape or known.stride() != spec.stride:
                raise UnsupportedOp("an operator that changes a tensor's shape in place is not simulated")
            return known
        tensor = DeviceTensor(spec, self)
        self._known[spec.handle] = tensor
        return tensor

    def dispatch(self, func: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
        """Run one ATen operator that has a device tensor, or a device among its arguments."""
        name = _op_name(func)
        if name == "_to_copy.default" or name == "copy_.default":
            return self._copy(name, args, kwargs)
        kwargs = {key: value for key, value in kwargs.items() if key not in ("device", "pin_memory", "generator")}
        _refuse_mixed(func, args, kwargs)
        uploaded: list[DeviceTensor] = []  # keeps copies of host operands alive until the operator has run
        encode = partial(self._encode, uploaded)
        result = self.channel.op(name, tree_map(encode, args), tree_map(encode, kwargs))
        return tree_map(lambda value: self.wrap(value) if isinstance(value, TensorSpec) else value, result)

    def _encode(self, uploaded: list[DeviceTensor], value: Any) -> Any:
        if isinstance(value, DeviceTensor):
            return Ref(value._handle)
        if isinstance(value, torch.Tensor):  # index tensors and 0-dim scalars may stay on the host, as on CUDA
            uploaded.append(self.wrap(self.channel.upload(value.detach())))
            return Ref(uploaded[-1]._handle)
        if isinstance(value, torch.device):
            return None
        return value

    def _copy(self, name: str, args: tuple, kwargs: dict[str, Any]) -> Any:
        """Casts and copies between host and device."""
        if name == "copy_.default":
            target, source = args[0], args[1]
            if isinstance(target, DeviceTensor):
                if not isinstance(source, DeviceTensor):
                    source = self.wrap(self.channel.upload(source.detach()))
                self.channel.op(name, [Ref(target._handle), Ref(source._handle)], {})
            else:
                target.copy_(self.channel.download(Ref(source._handle)))
            return target
        source, device = args[0], kwargs.get("device")
        to_host = device is not None and torch.device(device).type == "cpu"
        casts = {key: kwargs[key] for key in ("dtype", "memory_format") if kwargs.get(key) is not None}
        if not isinstance(source, DeviceTensor):
            spec = self.channel.upload(source.detach())
            return (
                self._cast(self.wrap(spec), casts) if casts.get("dtype") not in (None, spec.dtype) else self.wrap(spec)
            )
        if to_host:
            value = self.channel.download(Ref(source._handle))
            return value.to(casts["dtype"]) if "dtype" in casts else value
        return self._cast(source, casts)

    def _cast(self, source: DeviceTensor, casts: dict[str, Any]) -> DeviceTensor:
        return self.wrap(self.channel.op("_to_copy.default", [Ref(source._handle)], casts))


class OperatorMode(TorchDispatchMode):
    """Forwards what has no device tensor yet but asks for the device: factories and uploads."""

    def __init__(self, link: DeviceLink):
        super().__init__()
        self.link = link

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        device = kwargs.get("device")
        wanted = device is not None and torch.device(device).type in ("cuda", "meta")
        if wanted or any(isinstance(leaf, DeviceTensor) for leaf in _tensors(args, kwargs)):
            return self.link.dispatch(func, args, kwargs)
        return func(*args, **kwargs)


class DeviceArgumentMode(TorchFunctionMode):
    """Rewrites ``device="cuda"`` into what torch's CPU build accepts, and ``.cuda()`` into ``.to``."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        name = getattr(func, "__name__", "")
        if func is torch.Tensor.cuda:
            return args[0].to(META, non_blocking=kwargs.get("non_blocking", False))
        if func is torch.Tensor.pin_memory:
            return args[0]
        if is_cuda(kwargs.get("device")):
            kwargs["device"] = META
            if name in ("tensor", "as_tensor", "asarray"):
                return _factory_from_data(func, args, kwargs)
        elif name in ("tensor", "as_tensor") and isinstance(args[0] if args else None, DeviceTensor):
            return args[0].clone().detach() if name == "tensor" else args[0]
        kwargs.pop("pin_memory", None)
        if isinstance(kwargs.get("generator"), DeviceGenerator):
            kwargs.pop("generator")
        if name in ("to", "type", "new_tensor"):
            args = tuple(META if is_cuda(value) else value for value in args)
        return func(*args, **kwargs)


class DeviceGenerator(torch._C.Generator):
    """``torch.Generator(device="cuda")``: a host generator that says it is on the GPU, so that torch's argument
    parser takes it. Draws on the device use the device's own generator, seeded through it."""

    def __new__(cls, device: Any = None) -> DeviceGenerator:
        return super().__new__(cls)

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        return CUDA

    def manual_seed(self, seed: int) -> DeviceGenerator:
        torch.default_generator.manual_seed(seed)
        return self


def is_cuda(value: Any) -> bool:
    """Whether an argument names the GPU."""
    if isinstance(value, torch.device):
        return value.type == "cuda"
    return isinstance(value, str) and (value == "cuda" or value.startswith("cuda:"))


def _factory_from_data(func: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
    """``torch.tensor(data, device="cuda")``: built on the host, then copied over."""
    kwargs.pop("device")
    requires_grad = kwargs.pop("requires_grad", False)
    value = func(*args, **kwargs)
    if not isinstance(value, DeviceTensor):
        value = value.to(META)
    return value.requires_grad_() if requires_grad else value


def _op_name(func: Any) -> str:
    if func.namespace != "aten":
        raise UnsupportedOp(f"operator {func.name()} is not an ATen operator and is not simulated on the device")
    return f"{func._schema.name.removeprefix('aten::')}.{func._overloadname}"


def _tensors(args: Any, kwargs: Any) -> list[torch.Tensor]:
    """Tensors among the arguments, lists looked into one level deep (as ATen's schemas are)."""
    found: list[torch.Tensor] = []
    for value in (*args, *kwargs.values()):
        if isinstance(value, torch.Tensor):
            found.append(value)
        elif isinstance(value, (list, tuple)):
            found += [item for item in value if isinstance(item, torch.Tensor)]
    return found


def _refuse_mixed(func: Any, args: tuple, kwargs: dict[str, Any]) -> None:
    """Host tensors with elements may not meet device tensors, except as indices."""
    name = func._schema.name
    if name in ("aten::index", "aten::index_put", "aten::index_put_", "aten::_index_put_impl_"):
        return
    for leaf in _tensors(args, kwargs):
        if not isinstance(leaf, DeviceTensor) and leaf.dim() > 0:
            raise RuntimeError(MIXED_DEVICES.format(op=name))
