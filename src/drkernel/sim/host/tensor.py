"""Host-side tensors of the simulated GPU, and the link that sends their operators to the device.

A :class:`DeviceTensor` holds no data. It is a wrapper with shape, stride and dtype whose storage lives on the device,
identified by a handle. To PyTorch's C++ it looks like a meta tensor (so no device guard is needed), to Python it
reports ``cuda:0``. ``modes.py`` makes unmodified host code use it.

Fake tensors that host code makes itself, as compilers do: they are on ``cuda:0``, and the device is not involved.
"""

from __future__ import annotations

import copy
import ctypes
import functools
import itertools
import pickle
import sys
import threading
import warnings
import weakref
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any

import torch

from drkernel.sim.gpu.operator_rules import ALLOCATORS, BY_FORM, METADATA_OPERATORS, names, rule_of
from drkernel.sim.gpu.shapes import bare, tensors_in
from drkernel.sim.wire.commands import Channel, Ref, TensorSpec, UnsupportedOp

CUDA = torch.device("cuda", 0)
META = torch.device("meta")
AUTOCAST = torch._C.DispatchKeySet(torch._C._dispatch_key_parse("AutocastPrivateUse1"))
"""lets ``autocast.py`` see operators on device tensors above autograd; torch's autocast for CUDA wants CUDA tensors"""
MIXED_DEVICES = (
    "Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu! "
    "(when checking arguments of {op})"
)
MIXED_INDICES = "indices should be either on cpu or on the same device as the indexed tensor (cpu)"
INDEX_OPERATORS = frozenset(("aten::index", "aten::index_put", "aten::index_put_", "aten::_index_put_impl_"))


class _Owner:
    """A handle held by the host; the device may free the tensor when the last host object is gone."""

    __slots__ = ("__weakref__", "handle", "link")

    def __init__(self, handle: int, link: DeviceLink):
        self.handle = handle
        self.link = link

    def __del__(self) -> None:
        self.link.release(self.handle)


class _DeviceStorage:
    """A storage: its address and size, and its bytes, by way of a tensor that has it."""

    device = CUDA
    is_cuda = True
    __class__ = property(lambda self: torch.UntypedStorage)  # type: ignore[assignment]  # TypedStorage asks for one

    def __init__(self, tensor: DeviceTensor, nbytes: int):
        self._tensor = tensor
        self._address = self._cdata = tensor.data_ptr() - int(tensor.storage_offset()) * tensor.element_size()
        self._nbytes = nbytes

    def data_ptr(self) -> int:
        return self._address

    def nbytes(self) -> int:
        return self._nbytes

    def elements(self, dtype: torch.dtype = torch.uint8) -> torch.Tensor:
        """All of it, as a vector of numbers."""
        tensor = self._tensor.detach()
        return tensor.as_strided((self._nbytes // tensor.element_size(),), (1,), 0).view(dtype)

    def __getattr__(self, name: str) -> Any:
        if name in ("cpu", "clone"):
            return lambda: getattr(self.elements(), name)().untyped_storage()
        if name in ("tolist", "fill_"):
            return getattr(self.elements(), name)
        if hasattr(torch.UntypedStorage, name) and name[0] != "_":
            raise UnsupportedOp(f"{name} of a storage is not offered on the simulated device")
        raise AttributeError(name)

    def share_memory_(self) -> _DeviceStorage:
        return self  # as every process sees the GPU's

    def is_shared(self) -> bool:
        return True

    def __getitem__(self, index: Any) -> Any:
        return self.elements()[index].tolist()

    size = __len__ = nbytes


class DeviceTensor(torch.Tensor):
    """A tensor on the simulated GPU."""

    _handle: int
    _address: int
    _owner: _Owner
    _link: DeviceLink

    @staticmethod
    def __new__(cls, spec: Any, owner: _Owner | None = None, **options: Any) -> Any:
        if owner is None:  # type(parameter)(value, requires_grad=...), as loaders of weights write
            return torch.nn.Parameter(spec, **options)
        tensor = torch.Tensor._make_wrapper_subclass(
            cls, spec.shape, strides=spec.stride, storage_offset=spec.offset, dtype=spec.dtype, device=META,
            storage_size=spec.storage, _extra_dispatch_keys=AUTOCAST,
        )  # fmt: skip
        tensor._handle = spec.handle
        tensor._address = spec.address
        tensor._owner = owner
        tensor._link = owner.link
        return tensor

    def __init__(self, *args: Any, **options: Any) -> None: ...

    device = property(lambda self: CUDA)  # type: ignore[assignment]
    is_cuda = property(lambda self: True)  # type: ignore[assignment]
    is_meta = is_cpu = property(lambda self: False)  # type: ignore[assignment]

    @property
    def data(self) -> torch.Tensor:  # type: ignore[override]
        return torch.Tensor.data.__get__(self)  # type: ignore[attr-defined]

    @data.setter
    def data(self, value: torch.Tensor) -> None:
        if isinstance(value, DeviceTensor):
            self._take(value.detach())  # type: ignore[arg-type]
        else:
            self._link.move(self, value)

    def __coerce_same_metadata_as_tangent__(self, meta: Any, expected: type | None = None) -> DeviceTensor | None:
        return self if expected is torch.Tensor else None  # a plain tensor was traced in its place

    def _take(self, other: DeviceTensor) -> None:
        """Become ``other``, as ``x.data = other`` does: same object, but other shape, dtype and memory."""
        with torch._C._DisableTorchDispatch():  # whether both are of one kind is asked by an operator, since torch 2.13
            torch.Tensor.data.__set__(self, other)  # type: ignore[attr-defined]
        self._link._known.pop(self._handle, None)  # a weak reference that is left would hinder an exchange
        self._handle, self._address, self._owner = other._handle, other._address, other._owner
        self._link._known[self._handle] = self

    def set_(self, source: Any = None, *layout: Any) -> DeviceTensor:  # type: ignore[override]
        """Share the memory of another tensor, or of a storage: all of it, or (offset, shape, strides) of it."""
        source = getattr(source, "_untyped_storage", source)
        if isinstance(source, torch.UntypedStorage):
            source = source.elements(self.dtype)  # type: ignore[attr-defined]
            offset, shape, *strides = layout or (0, source.shape)
            source = source.as_strided(shape, strides[0] if strides else torch.empty(shape).stride(), offset)
        elif layout or not isinstance(source, DeviceTensor):
            raise UnsupportedOp("set_ is offered on the simulated device for one of its tensors or storages")
        mine, its = (torch.empty(0, dtype=one.dtype) for one in (self, source))
        mine.set_(its)  # type: ignore[call-overload]  # refuses another dtype
        self._take(source.detach())
        return self

    def get_device(self) -> int:
        return 0

    def data_ptr(self) -> int:
        return self._address

    def untyped_storage(self) -> Any:
        return _DeviceStorage(self, super().untyped_storage().nbytes())

    def is_pinned(self, *args: Any) -> bool:
        return False

    def record_stream(self, stream: Any) -> None: ...

    def numpy(self, *, force: bool = False) -> Any:
        if force:
            return self.detach().cpu().resolve_conj().resolve_neg().numpy()
        raise TypeError(
            "can't convert cuda:0 device type tensor to numpy. "
            "Use Tensor.cpu() to copy the tensor to host memory first."
        )

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        return self.numpy()

    def tolist(self) -> Any:
        return self.detach().cpu().tolist()

    def as_subclass(self, cls: type) -> Any:  # type: ignore[override]
        """A view whose class is ``cls``, and the device's."""
        view = self.view(self.shape)
        view.__class__ = _on_device(cls)
        return view

    def __copy__(self) -> torch.Tensor:
        return self.detach().requires_grad_(self.requires_grad)

    def __deepcopy__(self, memo: dict) -> torch.Tensor:
        if id(self) in memo:
            return memo[id(self)]
        if not self.is_leaf:
            raise RuntimeError("Only Tensors created explicitly by the user support the deepcopy protocol")
        if isinstance(self, torch.nn.Parameter):
            copied: torch.Tensor = torch.nn.Parameter(self.detach().clone(), self.requires_grad)
        else:  # with its gradient and attributes, and over memory that copies of its other views share
            plain, storages = self.detach().resolve_conj().resolve_neg(), memo.setdefault(DeviceTensor, {})
            storage: Any = plain.untyped_storage()
            _, whole = storages.setdefault(storage._cdata, (storage, storage.elements(self.dtype).clone()))
            copied = whole.view(self.dtype).as_strided(self.shape, plain.stride(), plain.storage_offset())
            copied.requires_grad_(self.requires_grad).grad = copy.deepcopy(self.grad, memo)
            vars(copied).update(copy.deepcopy({k: v for k, v in vars(self).items() if k not in vars(copied)}, memo))
        memo[id(self)] = copied
        return copied

    def __reduce_ex__(self, version: Any) -> Any:
        parameter = isinstance(self, torch.nn.Parameter)
        if not getattr(loading, "by_storage", False):
            return restore, (self.detach().cpu(), self.requires_grad, parameter)
        if parameter:
            return torch._utils._rebuild_parameter, (self.detach(), self.requires_grad, {})
        plain = self.detach().resolve_conj().resolve_neg()
        form: Any = plain.storage_offset(), tuple(plain.shape), plain.stride(), self.requires_grad, {}
        return torch._utils._rebuild_tensor_v2, (plain._typed_storage(), *form)

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        if self._link.closed:
            return f"tensor(..., device='cuda:0', size={tuple(self.shape)}, dtype={self.dtype}, the device is closed)"
        host = self.detach().cpu()
        name, host = "tensor" if type(host) is torch.Tensor else type(host).__name__, host.as_subclass(torch.Tensor)
        contents = torch._tensor_str._tensor_str(host, len(name) + 1) if host.numel() else "[]"
        shown: Any = host.as_subclass(_shown_as(name)).requires_grad_(self.requires_grad)
        shown.grad_fn = self.grad_fn
        text = torch._tensor_str._str(shown, tensor_contents=contents)
        return f"Parameter containing:\n{text}" if isinstance(self, torch.nn.Parameter) else text

    def apply_(self, function: Any) -> Any:
        raise TypeError("apply_ is only implemented on CPU tensors")

    def __format__(self, spec: str) -> str:
        return format(self.item(), spec) if self.dim() == 0 else object.__format__(self, spec)

    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if any(not issubclass(kind, DeviceTensor) for kind in types):
            return NotImplemented  # a wrapper's, which knows what to do with the tensors in it
        for leaf in tensors_in([*args, *(kwargs or {}).values()]):
            if isinstance(leaf, DeviceTensor):
                return leaf._link.unseen(leaf._link, func, args, kwargs or {})
        raise AssertionError("dispatched to a device without a device tensor")


@functools.lru_cache(maxsize=256)
def _shown_as(name: str) -> type:
    """A class of copies on the host that are printed as a GPU's tensors of the class ``name``."""
    return type(name, (torch.Tensor,), {"device": CUDA, "grad_fn": None})


class _Subclassed(torch.Tensor):
    """Gives subclasses back what device tensors do without: results that are of the subclass, too."""

    _original: type

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        with torch._C.DisableTorchFunctionSubclass():
            result = func(*args, **(kwargs or {}))
        if func in torch.overrides.get_default_nowrap_functions():
            return result
        return torch._tensor._convert(result, cls._original)


@functools.lru_cache(maxsize=256)
def _on_device(cls: type) -> type:
    """A class of device tensors that is also ``cls``, and treats functions as ``cls`` does."""
    if issubclass(cls, DeviceTensor):
        return cls
    found = type(cls.__name__, (cls, _Subclassed, DeviceTensor), {"__module__": cls.__module__, "_original": cls})
    own, default = cls.__torch_function__, torch.Tensor.__torch_function__.__func__  # type: ignore[attr-defined]
    own = _Subclassed.__torch_function__ if getattr(own, "__func__", None) is default else own
    bound = getattr(own, "__func__", None)  # None: a static method
    # torch has switched it off
    found.__torch_function__ = classmethod(bound) if bound else staticmethod(own)  # type: ignore[attr-defined]
    return found


def restore(host: torch.Tensor, requires_grad: bool, parameter: bool) -> torch.Tensor:
    """Restore a pickled device tensor: on the device if one is active and loading does not specify otherwise."""
    value = host if getattr(loading, "on_host", False) or not torch.cuda.is_available() else host.cuda()
    return torch.nn.Parameter(value, requires_grad) if parameter else value.requires_grad_(requires_grad)


loading = threading.local()
"""``.on_host``: pickled tensors stay there; ``.by_storage``: tensors are written as parts of storages"""


def _sent(tensor: DeviceTensor) -> Any:
    """Pickle a tensor for another process: whole, as nothing keeps its copy on the host until that process has it."""
    warnings.warn("a tensor on the GPU is copied for the other process; CUDA shares its memory", stacklevel=2)
    return pickle.loads, (pickle.dumps(tensor),)


ForkingPickler.register(DeviceTensor, _sent)


def for_device(lazy: Any) -> Any:
    """Note that a lazy module's parameter, whose shape is not known yet, will be made on the GPU."""
    lazy.on_device = True
    return lazy


def _made(spec: TensorSpec, owner: _Owner) -> DeviceTensor:
    """A tensor outside of inference mode: views of what was made there must be able to share its version."""
    with torch.inference_mode(False) if torch.is_inference_mode_enabled() else nullcontext():
        return DeviceTensor(spec, owner)


class DeviceLink:
    """The host's end of one device: turns ATen calls into commands and results into :class:`DeviceTensor`."""

    def __init__(self, channel: Channel):
        self.channel = channel
        self.closed = False
        self.generator = threading.local()
        """``.ref``: the device generator that the running call was given"""
        self.generator_numbers = itertools.count(1)
        self.unseen: Callable[..., Any] = DeviceLink.dispatch
        """runs (link, operator, args, kwargs) where PyTorch has switched modes off"""
        self.originals: list[tuple[Any, str, Any]] = []
        """(owner, name, value) of what host code would find without this device"""
        self.trials: Callable[[Any], AbstractContextManager[None]] = nullcontext
        """a block in which kernels are launched only to be timed: for "tuning", or as a "benchmark" """
        self.sync_debug = 0
        """``torch.cuda.set_sync_debug_mode``: 1 warns where the host waits for the device, 2 fails"""
        self.text_of_stage: Callable[[str, dict[str, Any], str], str] | None = None
        """a kernel's text at a stage of the target's compiler, by TTIR, the backend's options and the stage's name"""
        self._known: weakref.WeakValueDictionary[int, DeviceTensor] = weakref.WeakValueDictionary()
        self._owners: weakref.WeakValueDictionary[int, _Owner] = weakref.WeakValueDictionary()

    def close(self) -> None:
        """Stop sending: tensors that outlive the device are released silently."""
        self.closed = True

    def release(self, handle: int) -> None:
        """Called when the host drops its last reference to a tensor."""
        if not self.closed:
            self.channel.free(handle)

    def wrap(self, spec: TensorSpec) -> DeviceTensor:
        """Return the host tensor of a device tensor: one object per handle."""
        known = self._known.get(spec.handle)
        if known is not None and known._handle == spec.handle:
            if known.shape != spec.shape or known.stride() != spec.stride:
                known._take(_made(spec, known._owner))  # an operator changed its shape in place
            return known
        owner = self._owners.get(spec.handle)
        if owner is None:
            self._owners[spec.handle] = owner = _Owner(spec.handle, self)
        self._known[spec.handle] = tensor = _made(spec, owner)
        return tensor

    def move(self, target: torch.Tensor, value: torch.Tensor) -> None:
        """``target.data = value`` on another device: the same object, with its gradient."""
        moved: Any = value.detach()
        if isinstance(target, torch.nn.Parameter):
            moved = torch.nn.Parameter(moved, target.requires_grad)
        if target.grad is not None:
            moved.grad = target.grad.to(value.device, value.dtype)
        with _held_by_graphs():
            self.swap(target, moved)

    def swap(self, one: torch.Tensor, other: torch.Tensor, exchange: Any = torch.utils.swap_tensors) -> None:
        """Exchange two tensors, on the device or the host, below their Python objects."""
        pair = one, other
        for tensor in pair:
            if isinstance(tensor, DeviceTensor):
                self._known.pop(tensor._handle, None)  # torch swaps only what nothing refers to weakly
        exchange(*pair)
        self._known.update({tensor._handle: tensor for tensor in pair if isinstance(tensor, DeviceTensor)})

    def dispatch(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """Run one ATen operator that has a device tensor, or a device among its arguments."""
        if self.closed:
            raise RuntimeError("this tensor's simulated device is closed: its 'with' block has ended")
        func = _CHECKED.get(func, func)
        op = _facts_of(func)
        if self.sync_debug and op.waits:
            self._tell_wait()
        if op.copies:
            return self._copy(op.name, args, kwargs)
        if kwargs:
            device = kwargs.get("device")
            if device is not None and device.type == "cpu" and op.from_template:
                return self._host_from_template(func, args, kwargs)
            generator = kwargs.get("generator")
            if generator is not None:
                raise RuntimeError("Expected a 'cuda' device type for generator but found 'cpu'")
            kwargs = {key: value for key, value in kwargs.items() if key not in _HOST_OPTIONS}
        if op.mixes is None:
            self._refuse_mixed_indices(args)
        elif op.from_template and not isinstance(args[0], DeviceTensor):
            args = (self._template(args[0]), *args[1:])
        target = kwargs.get("out", None if op.in_place is None else args[op.in_place])
        if not op.views and isinstance(target, DeviceTensor) and (target.is_conj() or target.is_neg()):
            raise UnsupportedOp(f"{op.qualified} into a conjugated view is not offered on the simulated device")
        turned = op.views and (op.turns or args[0].is_conj() or args[0].is_neg())
        forms = func(_form_of(args[0]), *args[1:], **kwargs) if turned else None  # raises what PyTorch does
        sent: list[DeviceTensor] = []  # keeps copies of host operands alive until the operator has run
        plain_args = [self._encode(value, op, sent) for value in args]
        plain_kwargs = {key: self._encode(value, op, sent) for key, value in kwargs.items()}
        if op.draws and (drawn_from := getattr(self.generator, "ref", None)) is not None:
            plain_kwargs["generator"] = drawn_from
        known = args[0].untyped_storage().nbytes() if op.fresh == "grown" else 0
        result = self._decode(self.channel.op(op.name, plain_args, plain_kwargs))
        for one, form in zip(tensors_in(result), tensors_in(forms), strict=False):
            torch._C._set_conj(one, form.is_conj())
            torch._C._set_neg(one, form.is_neg())
        filled = op.fresh and torch.are_deterministic_algorithms_enabled()
        if filled and torch.utils.deterministic.fill_uninitialized_memory:  # type: ignore[attr-defined]
            real, whole = result.is_floating_point() or result.is_complex(), result.dtype == torch.bool
            value = torch.nan if real else whole or torch.iinfo(result.dtype).max
            result.untyped_storage().elements(result.dtype)[known // result.element_size() :].fill_(value)
        return result if op.in_place is None else args[op.in_place]

    def _tell_wait(self) -> None:
        if self.sync_debug == 2:
            raise RuntimeError("called a synchronizing CUDA operation")
        warnings.warn("called a synchronizing CUDA operation", stacklevel=4)

    def _decode(self, value: Any) -> Any:
        if isinstance(value, TensorSpec):
            return self.wrap(value)
        if isinstance(value, (list, tuple)):
            return type(value)(self._decode(item) for item in value)
        return value

    def _encode(self, value: Any, op: _OperatorFacts, sent: list[DeviceTensor]) -> Any:
        if isinstance(value, DeviceTensor):
            sent.append(value if op.views else self._turned(value, value))
            return Ref(sent[-1]._handle)
        if isinstance(value, torch.Tensor):  # index tensors and 0-dim scalars may stay on the host, as on CUDA
            if value.dim() > 0 and op.mixes is False:
                rule_of(op.name)  # an operator that is not offered is refused as such
                raise RuntimeError(MIXED_DEVICES.format(op=op.qualified))
            sent.append(self.upload(value))
            return Ref(sent[-1]._handle)
        if isinstance(value, (list, tuple)):
            return [self._encode(item, op, sent) for item in value]
        return None if isinstance(value, torch.device) else value

    def _turned(self, value: DeviceTensor, like: torch.Tensor) -> DeviceTensor:
        """The numbers of ``value`` conjugated and negated as the view ``like`` is; itself where that is neither."""
        for name, turned in (("_conj_physical.default", like.is_conj()), ("neg.default", like.is_neg())):
            value = self.wrap(self.channel.op(name, [Ref(value._handle)], {})) if turned else value
        return value

    def upload(self, value: torch.Tensor) -> DeviceTensor:
        """Copy a host tensor to the device."""
        if value.device.type != "cpu" or value.layout != torch.strided:
            raise UnsupportedOp(f"a {value.layout} tensor of device {value.device} met the simulated device")
        return self.wrap(self.channel.upload(value.detach()))

    def _template(self, value: torch.Tensor) -> DeviceTensor:
        """Return a device tensor of a host tensor's form, for ``zeros_like(host, device="cuda")``."""
        form = [list(value.shape), list(value.stride())]
        return self.wrap(self.channel.op("empty_strided.default", form, {"dtype": value.dtype}))

    def _host_from_template(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """Run ``zeros_like(device_tensor, device="cpu")`` and similar calls on the host."""
        first = args[0]
        form = torch.empty_strided(first.shape, first.stride(), dtype=first.dtype)
        return func(form, *args[1:], **kwargs)

    def _refuse_mixed_indices(self, args: Any) -> None:
        if not isinstance(args[0], DeviceTensor) and any(isinstance(i, DeviceTensor) for i in args[1]):
            raise RuntimeError(MIXED_INDICES)

    def _copy(self, name: str, args: Any, kwargs: dict[str, Any]) -> Any:
        """Cast, or copy between host and device."""
        if name == "copy_.default":
            return self._copy_into(*args[:2])
        source, device = args[0], kwargs.get("device")
        casts = {key: kwargs[key] for key in ("dtype", "memory_format") if kwargs.get(key) is not None}
        if not isinstance(source, DeviceTensor):
            return self.upload(source.to(**casts) if casts else source)
        source = self._turned(source, source)
        if device is not None and device.type == "cpu":
            if self.sync_debug and not kwargs.get("non_blocking"):
                self._tell_wait()
            value = self.channel.download(Ref(source._handle))
            return value.to(casts["dtype"]) if "dtype" in casts else value
        return self.wrap(self.channel.op("_to_copy.default", [Ref(source._handle)], casts))

    def _copy_into(self, target: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
        if not isinstance(target, DeviceTensor):
            return target.copy_(source.cpu())
        held = source if isinstance(source, DeviceTensor) else self.upload(source.to(target.dtype))
        held = self._turned(self._turned(held, held), target)
        self.channel.op("copy_.default", [Ref(target._handle), Ref(held._handle)], {})
        return target


@contextmanager
def _held_by_graphs() -> Iterator[None]:
    """Let graphs hold what is exchanged, as they may on a GPU: they keep the old numbers, and gradients of a parameter
    that moved before its backward are refused there."""
    kind: Any = torch.Tensor
    count = kind._use_count
    kind._use_count = lambda self: min(count(self), 1 + (self.is_leaf and self.requires_grad))
    try:
        yield
    finally:
        del kind._use_count


_CHECKED = {
    torch.ops.aten._unsafe_index.Tensor: torch.ops.aten.index.Tensor,
    torch.ops.aten._unsafe_index_put.default: torch.ops.aten.index_put.default,
}
"""operators that do not look at their indices -> those that do"""
_HOST_OPTIONS = frozenset(("device", "pin_memory", "generator", "non_blocking"))
_TEMPLATES = BY_FORM | names("empty_like new_empty new_empty_strided")


class _OperatorFacts:
    """The facts about an operator that dispatching needs."""

    def __init__(self, func: Any):
        if func.namespace != "aten":
            raise UnsupportedOp(f"operator {func.name()} is not an ATen operator and is not simulated on the device")
        schema = func._schema
        base = schema.name.removeprefix("aten::")
        self.qualified = schema.name
        self.name = f"{base}.{func._overloadname}"
        self.copies = self.name in ("_to_copy.default", "copy_.default")
        self.from_template = base in _TEMPLATES
        self.turns = base in ("_conj", "_neg_view")
        aliases = [one.alias_info for one in schema.returns if one.alias_info is not None]
        self.views = base in METADATA_OPERATORS or any(not one.is_write for one in aliases)
        # memory that nothing has written: all of the result, or what a storage has gained
        self.fresh = "grown" if base in ("resize_", "resize_as_") else "all" if base in ALLOCATORS else ""
        self.waits = bool({torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape} & set(func.tags))
        self.draws = torch.Tag.nondeterministic_seeded in func.tags
        # whether host tensors with elements may be operands; None: as indices
        self.mixes = None if schema.name in INDEX_OPERATORS else False
        self.in_place = _written_argument(schema)


def _written_argument(schema: Any) -> int | None:
    """Return the argument that an in-place or out= operator returns, if it returns just that."""
    if len(schema.returns) != 1:
        return None
    alias = schema.returns[0].alias_info
    if alias is None or not alias.is_write:
        return None
    for index, argument in enumerate(schema.arguments):
        info = argument.alias_info
        if info is not None and info.is_write and info.before_set == alias.before_set and not argument.kwarg_only:
            return index
    return None


def _form_of(tensor: torch.Tensor) -> torch.Tensor:
    """A meta tensor of the same form, conjugated or negated as this view is."""
    form = bare(tensor).conj() if tensor.is_conj() else bare(tensor)
    return torch._neg_view(form) if tensor.is_neg() else form


@functools.lru_cache(maxsize=4096)
def _facts_of(func: Any) -> _OperatorFacts:
    return _OperatorFacts(func)


GUARDS = "_ZN3c104impl26device_guard_impl_registryE"
CUDA_TYPE, META_TYPE = 1, 14
"""numbers of kinds of devices in c10"""


def faking() -> bool:
    """Whether a ``FakeTensorMode`` is on in this thread; other modes are asked before it, whatever came first."""
    return torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.FAKE) is not None


def faked(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """Hand an operator on to the fake mode, with the device that host code named."""
    guard_nothing()
    known_to_tracers()
    return func(*[told(value) for value in args], **{key: told(value) for key, value in kwargs.items()})


def known_to_tracers() -> None:
    """Let those that leave classes of tensors to the classes' own code take the device's tensors for plain ones."""
    for name in ("torch.fx.experimental.proxy_tensor", "torch._functorch._aot_autograd.runtime_wrappers"):
        module: Any = sys.modules.get(name)
        if DeviceTensor not in getattr(module, "HANDLED_TYPES", (DeviceTensor,)):
            module.HANDLED_TYPES += (DeviceTensor,)
    fake: Any = sys.modules.get("torch._subclasses.fake_tensor")
    if (check := getattr(fake, "_check_for_subclass_arg", None)) and not hasattr(check, "but_ours"):
        fake._check_for_subclass_arg = lambda x: not isinstance(x, DeviceTensor) and check(x)
        fake._check_for_subclass_arg.but_ours = True


def traced(tracer: Any, func: Any, types: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """Hand an operator to ``make_fx``, which runs it and writes it down, with the device that host code named."""
    known_to_tracers()
    args, kwargs = tuple(map(told, args)), {key: told(value) for key, value in kwargs.items()}
    return tracer.__torch_dispatch__(func, types, args, kwargs)


def told(value: Any) -> Any:
    """Return what host code is told for an argument: the GPU, where the device's modes wrote "meta"."""
    return CUDA if isinstance(value, torch.device) and value.type == "meta" else value


@functools.cache
def guard_nothing() -> None:
    """Let C++ code that sets the current device around an operator on ``cuda:0`` do nothing, as it does for meta.

    A CPU build has no guard for CUDA devices and raises where fake tensors meet one (batch norm, autograd's metadata);
    a CUDA build's asks the driver, which ends the process where there is no GPU. The table of guards is libc10's own;
    where it is not found, such modules stay uncompiled.
    """
    folder = Path(torch.__file__).parent / "lib"
    try:
        table = (ctypes.c_void_p * (META_TYPE + 1)).in_dll(ctypes.CDLL(str(folder / "libc10.so")), GUARDS)
    except (OSError, ValueError):
        return
    if not table[CUDA_TYPE] or not [*Path("/dev").glob("nvidia[0-9]*"), *Path("/dev").glob("dxg")]:  # dxg: of WSL
        table[CUDA_TYPE] = table[META_TYPE]
