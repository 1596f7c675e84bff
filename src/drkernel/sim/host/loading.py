"""The surroundings of tensors on the simulated device: checkpoints, legacy tensor types, ``torch.compile``."""

import contextlib
import functools
import importlib.util
import types
import warnings
from collections.abc import Callable
from importlib.machinery import PathFinder
from typing import Any

import torch
from torch import Tensor

from drkernel.sim.host.modes import LEGACY_TYPES, default_is_cuda, is_cuda
from drkernel.sim.host.tensor import DeviceTensor, loading, restore
from drkernel.sim.wire.commands import UnsupportedOp

NO_PROFILER = "is not offered on the simulated device: the report of drkernel sim says where modelled time goes"
NO_GROUP = "is not offered on the simulated device: there is one GPU, and no group of them"


def refusing(message: str) -> Callable[..., Any]:
    """Return a function that raises :class:`UnsupportedOp`."""

    def refuse(*_: Any, **__: Any) -> Any:
        raise UnsupportedOp(message)

    return refuse


class NotOffered(UnsupportedOp, AttributeError):
    """An attribute of a GPU's object that the simulated device's has not."""


class Partial:
    """An object of ``torch.cuda`` that has less here than on a GPU: what it lacks is refused by name."""

    def __getattr__(self, name: str) -> Any:
        raise NotOffered(f"{type(self).__name__}.{name} is not offered on the simulated device")


def export_on(original: Callable[..., Any]) -> Callable[..., Any]:
    """Return a ``torch.export.export`` that traces, and does not have TorchDynamo read host code."""

    @functools.wraps(original)
    def export(*args: Any, strict: bool = False, **kwargs: Any) -> Any:
        if strict:
            raise UnsupportedOp("torch.export of strict=True is not offered on the simulated device")
        return original(*args, strict=False, **kwargs)

    return export


def load_on(original: Callable[..., Any]) -> Callable[..., Any]:
    """Return a ``torch.load`` that accepts the GPU as a place to load to."""

    @functools.wraps(original)
    def load(f: Any, map_location: Any = None, *args: Any, **kwargs: Any) -> Any:
        loading.on_host = map_location is not None and not is_cuda(map_location)
        try:
            with torch.serialization.safe_globals([restore]):
                return original(f, map_location, *args, **kwargs)
        finally:
            loading.on_host = False

    return load


def save_on(original: Callable[..., None]) -> Callable[..., None]:
    """Return a ``torch.save`` that writes the GPU's tensors as parts of storages of ``cuda:0``, in today's format."""

    @functools.wraps(original)
    def save(value: Any, *args: Any, **kwargs: Any) -> None:
        loading.by_storage = not isinstance(value, torch.TypedStorage)
        try:
            today = {"_use_new_zipfile_serialization": True} if loading.by_storage else {}
            original(value, *args, **{**kwargs, **today})
        finally:
            loading.by_storage = False

    return save


def storage_to_on(original: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``torch.UntypedStorage.to``, by which loading brings what was saved to the GPU."""

    def to(self: Any, **options: Any) -> Any:
        if not is_cuda(options["device"]):
            return original(self, **options)
        return torch.empty(0, dtype=torch.uint8, device="cpu").set_(self).cuda().untyped_storage()

    return to


def default_type_on(original: Callable[..., None]) -> Callable[..., None]:
    """Return ``torch.set_default_tensor_type``, for which a type of the GPU is a default device and dtype."""

    def choose(kind: Any) -> None:
        name = str(getattr(kind, "legacy_name", kind))
        on_gpu = name.startswith("torch.cuda.")
        if on_gpu or default_is_cuda():
            torch.set_default_device("cuda" if on_gpu else None)
        original(name.replace("torch.cuda.", "torch.") if on_gpu else kind)

    return choose


def materialize_on(original: Callable[..., None]) -> Callable[..., None]:
    """Return the method by which parameters of lazy modules get their shape, for those that were sent to the GPU."""

    @functools.wraps(original)
    def materialize(self: Any, shape: Any, device: Any = None, dtype: Any = None) -> None:
        moves = getattr(self, "on_device", False) if device is None else is_cuda(device)
        original(self, shape, "cpu" if moves else device, dtype)
        if moves:
            self.data = torch.empty_like(self.data, device="cuda")

    return materialize


def compile_eagerly(model: Any = None, **_: Any) -> Any:
    """Replace ``torch.compile``: what it is given runs as it is, with a warning, and is timed so."""
    if model is None:
        return compile_eagerly
    warnings.warn("torch.compile runs eagerly on the simulated device, and is timed so", stacklevel=2)
    return model


class CppExtension(types.ModuleType):
    """Replaces ``torch.utils.cpp_extension``: building anything raises an error that names it, without looking for
    compilers; paths and classes of set-up scripts are PyTorch's, imported when something asks for them."""

    CUDA_HOME = ROCM_HOME = None
    load = load_inline = staticmethod(
        refusing(
            "C++ and CUDA extensions are not offered on the simulated device: it runs Triton kernels; grade CUDA C++ "
            "on a GPU (--device cuda:0)"
        )
    )

    @functools.cached_property
    def real(self) -> types.ModuleType:
        """PyTorch's own module."""
        spec = PathFinder.find_spec(self.__name__, torch.utils.__path__)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.real, name)


class CublasLt(Partial):
    """Replaces Triton's ``nvidia.cublas.CublasLt`` and ``amd.hipblas.HipblasLt``: each product is one operator of
    PyTorch's. ``a`` has shape (M, K), ``b`` (N, K); fp32 is multiplied as PyTorch is set to, e4m3 summed in fp32."""

    def __init__(self, workspace: Tensor):
        """``workspace`` is taken, and not needed."""

    def matmul(self, a: Tensor, b: Tensor, c: Tensor) -> None:
        """Write ``a @ b.T`` to ``c``, of shape (M, N)."""
        if a.dtype == torch.float8_e4m3fn:
            one = torch.ones((), device=a.device)
            torch._scaled_mm(a, b.t(), one, one, out_dtype=c.dtype, out=c)
        else:
            torch.mm(a, b.t(), out=c)

    def gemm(self, a: Tensor, b: Tensor, c: Tensor, d: Tensor, alpha: float, beta: float) -> None:
        """Write ``alpha * a @ b.T + beta * c`` to ``d``, of shape (M, N)."""
        torch.addmm(c, a, b.t(), beta=beta, alpha=alpha, out=d)


class Proton(types.ModuleType):
    """Replaces ``triton.profiler``: scopes do nothing, and everything else raises an error that names it."""

    scope = staticmethod(lambda *_, **__: contextlib.nullcontext())

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return refusing(f"Proton (triton.profiler.{name}) {NO_PROFILER}")


def profile_on(original: Callable[..., None]) -> Callable[..., None]:
    """Return ``torch.autograd.profiler.profile.__init__``, on which ``torch.profiler`` rests, for the host alone."""

    @functools.wraps(original)
    def begin(self: Any, *args: Any, use_cuda: bool = False, use_device: Any = None, **kwargs: Any) -> None:
        if use_cuda or use_device == "cuda":
            warnings.warn(f"the GPU's part of torch.profiler {NO_PROFILER}", stacklevel=2)
            kwargs["use_cpu"], use_device = True, None
        original(self, *args, use_device=use_device, **kwargs)

    return begin


def process_group_on(original: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``torch.distributed.init_process_group`` that refuses NCCL."""

    @functools.wraps(original)
    def begin(backend: Any = None, *args: Any, **kwargs: Any) -> Any:
        if backend is None or "nccl" in str(backend):
            raise UnsupportedOp(f"NCCL {NO_GROUP}")
        return original(backend, *args, **kwargs)

    return begin


class _LegacyType(type):
    """``torch.cuda.FloatTensor`` and its like."""

    legacy_name: str
    dtype: torch.dtype

    def __instancecheck__(cls, value: Any) -> bool:
        return isinstance(value, DeviceTensor) and value.dtype == cls.dtype

    def __call__(cls, *args: Any, **kwargs: Any) -> torch.Tensor:
        size = args[0] if args and isinstance(args[0], torch.Size) else args
        if args and all(isinstance(n, int) for n in size):
            return torch.empty(size, dtype=cls.dtype, device="cuda")
        return torch.tensor(args[0] if args else [], dtype=cls.dtype, device="cuda")


LEGACY_TENSOR_TYPES: dict[str, Any] = {
    f"{name}Tensor": _LegacyType(f"{name}Tensor", (), {"dtype": dtype, "legacy_name": f"torch.cuda.{name}Tensor"})
    for name, dtype in LEGACY_TYPES.items()
}
