"""``torch.cuda`` on the simulated device: the queries that host code makes, answered from the spec and the device.

NVML on the simulated device: the queries with which libraries ask for a GPU before they touch ``torch.cuda``.

``pynvml`` (alone, or the copy that a library brings) and PyTorch load ``libnvidia-ml.so.1`` with ``ctypes``. On the
simulated device they get the functions below, which answer from the spec. Any other function is missing, as in the
library of an older driver: ``pynvml`` raises ``NVMLError_FunctionNotFound``, which names it.
"""

from __future__ import annotations

import abc
import ctypes
import functools
import itertools
import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import torch
import torch.utils.dlpack
from torch.nn.parameter import UninitializedTensorMixin  # type: ignore[attr-defined]

from drkernel.sim.host import loading
from drkernel.sim.host.library_calls import impl_on, redispatch_on, takes_attention
from drkernel.sim.host.modes import DeviceGenerator, default_is_cuda, encode_on, is_cuda, reinterpret, unless_ours
from drkernel.sim.host.tensor import CUDA, DeviceTensor, faking, for_device, told
from drkernel.sim.spec import GPUSpec

if TYPE_CHECKING:
    from drkernel.sim.host.tensor import DeviceLink


DLPACK = (torch, torch.utils.dlpack)
_SHARED = lambda value, device=None, copy=False: value.detach().to(device=device, copy=bool(copy))  # noqa: E731
FOREACH = (sys.modules["torch.optim.optimizer"], sys.modules["torch.utils._foreach_utils"])
"""modules that name the classes of tensors which operators on lists take"""
NO_GRAPH = "is not offered on the simulated device: launch the kernels, or call the eager function, themselves"
NO_SOURCE = "is not offered on the simulated device: it runs Triton kernels, not CUDA C++"
GRAPHS = "CUDAGraph", "graph", "make_graphed_callables"
LIBRARIES = ("libnvidia-ml.so.1", "libnvidia-ml.so")
DRIVER = b"570.00"
"""the driver that came with CUDA_VERSION 12.8, which ``torch.version.cuda`` names here"""
CUDA_VERSION = 12080
CUDNN_VERSION = 91002
_DTYPES = frozenset(value for value in vars(torch).values() if isinstance(value, torch.dtype))
"""found once: looking through all that torch has writes to some 280 pages, which each fork would copy"""
SUCCESS, INVALID_ARGUMENT, NOT_FOUND = 0, 2, 6
ERRORS = {SUCCESS: b"The operation was successful", INVALID_ARGUMENT: b"Invalid argument", NOT_FOUND: b"Not found"}


def library_on(spec: GPUSpec, query: Callable[[str], Any], original: Callable[..., None]) -> Callable[..., None]:
    """Return ``ctypes.CDLL.__init__`` that gives this GPU's library for the names of NVML."""

    class Library(ctypes.CDLL):
        """NVML of the simulated device."""

        def __getattr__(self, name: str) -> Any:
            try:
                return functions[name]
            except KeyError:
                raise AttributeError(f"the simulated device has no function {name} of NVML") from None

    functions = _functions(spec, query)

    @functools.wraps(original)
    def load(self: ctypes.CDLL, name: Any, *args: Any, **kwargs: Any) -> None:
        if name in LIBRARIES:
            self.__class__ = Library
            self._name = name
        else:
            original(self, name, *args, **kwargs)

    return load


def identity_of(spec: GPUSpec) -> uuid.UUID:
    """The number that tells this GPU from others."""
    return uuid.uuid5(uuid.NAMESPACE_OID, spec.full_name)


def _plain(value: Any) -> Any:
    """What a number or a text of ``ctypes`` holds, or what was passed as it is."""
    return getattr(value, "value", value)


def _functions(spec: GPUSpec, query: Callable[[str], Any]) -> dict[str, Callable[..., Any]]:
    """The functions by name. They take what ``ctypes`` passes: numbers, buffers, and references to what they fill."""
    identity = f"GPU-{identity_of(spec)}".encode()

    def done(*_: Any) -> int:
        return SUCCESS

    def number(value: int) -> Callable[..., int]:
        def give(*args: Any) -> int:
            args[-1]._obj.value = value
            return SUCCESS

        return give

    def text(value: bytes) -> Callable[..., int]:
        def give(*args: Any) -> int:
            args[-2].value = value
            return SUCCESS

        return give

    def handle(found: bool, missing: int, reference: Any) -> int:
        if not found:
            return missing
        ctypes.cast(reference, ctypes.POINTER(ctypes.c_void_p))[0] = 1
        return SUCCESS

    def by_index(index: Any, reference: Any) -> int:
        return handle(_plain(index) == 0, INVALID_ARGUMENT, reference)

    def by_uuid(wanted: Any, reference: Any) -> int:
        return handle(_plain(wanted) == identity, NOT_FOUND, reference)

    def capability(device: Any, major: Any, minor: Any) -> int:
        major._obj.value, minor._obj.value = spec.capability
        return SUCCESS

    def memory(device: Any, reference: Any) -> int:
        found, total, used = reference._obj, query("memory_bytes"), query("used_bytes")
        found.total, found.used, found.free = total, used, total - used
        return SUCCESS

    return {
        **dict.fromkeys(("nvmlInit", "nvmlInit_v2", "nvmlInitWithFlags", "nvmlShutdown"), done),
        "nvmlErrorString": lambda code: ERRORS.get(_plain(code), b"Unknown error"),
        "nvmlSystemGetDriverVersion": text(DRIVER),
        "nvmlSystemGetNVMLVersion": text(b"12." + DRIVER),
        "nvmlSystemGetCudaDriverVersion": number(CUDA_VERSION),
        "nvmlSystemGetCudaDriverVersion_v2": number(CUDA_VERSION),
        "nvmlDeviceGetCount_v2": number(1),
        "nvmlDeviceGetHandleByIndex_v2": by_index,
        "nvmlDeviceGetHandleByUUID": by_uuid,
        "nvmlDeviceGetIndex": number(0),
        "nvmlDeviceGetName": text(spec.full_name.encode()),
        "nvmlDeviceGetUUID": text(identity),
        "nvmlDeviceGetMemoryInfo": memory,
        "nvmlDeviceGetMemoryInfo_v2": memory,
        "nvmlDeviceGetCudaComputeCapability": capability,
    }


def _stream_classes(link: DeviceLink) -> tuple[type, type]:
    """``torch.cuda.Stream`` and ``torch.cuda.Event``. The device runs every stream in issue order, as one queue."""
    query = link.channel.query
    numbers = itertools.count(1)

    class Event(loading.Partial):
        """A CUDA event: ``elapsed_time`` is modelled milliseconds."""

        def __init__(self, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False):
            self._timed = enable_timing
            self._seconds: float | None = None

        def record(self, stream: Any = None) -> None:
            self._seconds = query("elapsed_seconds")

        def synchronize(self) -> None:
            query("synchronize")

        def wait(self, stream: Any = None) -> None: ...

        def query(self) -> bool:
            return True

        def elapsed_time(self, end: Any) -> float:
            if not self._timed or not end._timed:
                raise ValueError("Both events must be created with argument 'enable_timing=True'.")
            if self._seconds is None or end._seconds is None:
                raise RuntimeError("Both events must be recorded before calculating elapsed time.")
            return (end._seconds - self._seconds) * 1e3

    class Stream(loading.Partial):
        """A CUDA stream. It has an identity but orders nothing: the device runs all work as one queue."""

        device, device_index, device_type = CUDA, 0, 1

        def __init__(self, device: Any = None, priority: int = 0, stream_id: int | None = None, **_: Any):
            self.priority, self._before = priority, list[Any]()
            self.cuda_stream = self.stream_id = next(numbers) if stream_id is None else stream_id

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Stream) and other.stream_id == self.stream_id

        def __hash__(self) -> int:
            return self.stream_id

        priority_range = staticmethod(lambda: (0, -5))

        def synchronize(self) -> None:
            query("synchronize")

        def wait_stream(self, stream: Any) -> None: ...

        def wait_event(self, event: Any) -> None: ...

        def query(self) -> bool:
            return True

        def is_capturing(self) -> bool:
            return torch.cuda.is_current_stream_capturing()

        def __enter__(self) -> Any:
            self._before.append(torch.cuda.current_stream())
            torch.cuda.set_stream(self)  # type: ignore[arg-type]
            return self

        def __exit__(self, *error: Any) -> None:
            torch.cuda.set_stream(self._before.pop())

        def record_event(self, event: Any = None) -> Any:
            event = event or Event(enable_timing=True)
            event.record(self)
            return event

    return Stream, Event


def _properties(spec: GPUSpec) -> SimpleNamespace:
    """Return the value of ``torch.cuda.get_device_properties``."""
    return SimpleNamespace(
        name=spec.full_name, major=spec.capability[0], minor=spec.capability[1], total_memory=spec.hbm_bytes,
        multi_processor_count=spec.sm_count, warp_size=spec.warp_size, uuid=identity_of(spec),
        clock_rate=round(spec.boost_clock_hz / 1e3), pci_domain_id=0, pci_bus_id=1, pci_device_id=0,
        max_threads_per_multi_processor=spec.max_threads_per_sm, max_threads_per_block=1024,
        shared_memory_per_block_optin=spec.max_smem_per_block, shared_memory_per_block=49152,
        shared_memory_per_multiprocessor=spec.smem_per_sm, regs_per_multiprocessor=spec.regs_per_sm,
        L2_cache_size=spec.l2_bytes, is_integrated=False, is_multi_gpu_board=False, gcnArchName=str(spec.arch),
    )  # fmt: skip


def device_facts(spec: GPUSpec) -> dict[str, Any]:
    """Return the functions of ``torch.cuda`` that the spec alone answers."""
    properties = _properties(spec)
    return {
        "is_available": lambda: True,
        "_initialized": True,
        "init": lambda: None,
        "_lazy_init": lambda: None,
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "set_device": lambda device: is_cuda(device) and None,
        "get_device_name": lambda device=None: spec.full_name,
        "get_device_capability": lambda device=None: spec.capability,
        "get_device_properties": lambda device=None: properties,
        "get_arch_list": lambda: [f"sm_{spec.arch}" if isinstance(spec.arch, int) else spec.arch],
        "is_bf16_supported": lambda including_emulation=True: True,
        "can_device_access_peer": lambda device, peer: False,
        "is_current_stream_capturing": lambda: False,
        "MemPool": lambda *_, **__: SimpleNamespace(id=(0, 1), use_count=lambda: 1, snapshot=list),
        "use_mem_pool": lambda pool, device=None: nullcontext(),
        "_exchange_device": lambda device: is_cuda(device) and 0,
        "_maybe_exchange_device": lambda device: is_cuda(device) and 0,
        # classes, as annotations may name them
        **{name: type(name, (), {"__init__": loading.refusing(f"torch.cuda.{name} {NO_GRAPH}")}) for name in GRAPHS},
        **loading.LEGACY_TENSOR_TYPES,
    }


_MARKS = SimpleNamespace(**dict.fromkeys(("rangePushA", "rangePop", "rangeStartA", "rangeEnd", "markA"), lambda *_: 0))
"""what ``torch.cuda.nvtx`` calls: marks for a profiler, of which there is none"""
_ERRORS_OF_CUDA = {0: "no error", 1: "invalid argument", 2: "out of memory"}


def _runtime(query: Callable[[str], Any]) -> SimpleNamespace:
    """Return ``torch.cuda.cudart()``: the part of CUDA's runtime that PyTorch hands to Python; 0 is success."""
    return SimpleNamespace(
        cudaError=type("cudaError", (int,), {"success": 0}),
        cudaGetErrorString=lambda code: _ERRORS_OF_CUDA.get(int(code), "unrecognized error code"),
        cudaProfilerStart=lambda: 0, cudaProfilerStop=lambda: 0, cudaHostRegister=lambda *_: 0,
        cudaHostUnregister=lambda _: 0,
        cudaMemGetInfo=lambda device=0: (query("memory_bytes") - query("used_bytes"), query("memory_bytes")),
    )  # fmt: skip


def _memory_stats(query: Callable[[str], Any]) -> Callable[[int], dict[str, Any]]:
    """Return ``torch._C._cuda_memoryStats``: bytes in use and the most that were; nothing is counted but these."""
    counters = ["num_alloc_retries", "num_ooms", "num_sync_all_streams", "num_device_alloc", "num_device_free"]
    kinds = ["allocation", "segment", "active", "inactive_split", "inactive_split_bytes"]

    def stats(device: int) -> dict[str, Any]:
        none = {"current": 0, "peak": 0, "allocated": 0, "freed": 0}
        held = {**none, "current": query("used_bytes"), "peak": query("peak_bytes")}
        found: dict[str, Any] = {"max_split_size": -1, **dict.fromkeys(counters, 0)}
        found |= {kind: {"all": none, "large_pool": none, "small_pool": none} for kind in kinds}
        for kind in ("allocated", "reserved", "active", "requested"):
            found[f"{kind}_bytes"] = {"all": held, "large_pool": held, "small_pool": none}
        return {**found, "oversize_allocations": none, "oversize_segments": none}

    return stats


def _replacements(spec: GPUSpec, link: DeviceLink, default: DeviceGenerator) -> dict[str, Any]:
    stream_class, event_class = _stream_classes(link)
    default_stream = stream_class(stream_id=0)
    current = [default_stream]
    return {
        **device_facts(spec),
        "_cudart": _runtime(link.channel.query),
        "default_generators": (default,),
        "synchronize": lambda device=None: link.channel.query("synchronize") and None,
        "current_stream": lambda device=None: current[0],
        "default_stream": lambda device=None: default_stream,
        "set_stream": lambda stream: current.__setitem__(0, current[0] if stream is None else stream),
        "Stream": stream_class,
        "ExternalStream": lambda stream_ptr, device=None, **_: stream_class(stream_id=stream_ptr),
        "Event": event_class,
    }


def _accelerator(replacements: dict[str, Any]) -> dict[str, Any]:
    """Return the same functions under the names of ``torch.accelerator``."""
    same = (
        "is_available", "device_count", "synchronize", "current_stream", "set_stream", "empty_cache", "memory_stats",
        "memory_allocated", "max_memory_allocated", "memory_reserved", "max_memory_reserved",
        "reset_peak_memory_stats", "reset_accumulated_memory_stats",
    )  # fmt: skip
    return {
        **{name: replacements.get(name, getattr(torch.cuda, name)) for name in same},
        "current_accelerator": lambda check_available=False: torch.device("cuda"),
        **{
            f"{verb}_device_{noun}": replacements[f"{verb}_device"]
            for verb in ("current", "set")
            for noun in ("index", "idx")
        },
        "device_index": lambda device, /: torch.cuda.device(device),
        "empty_host_cache": lambda: None,
        "get_device_capability": lambda device=None, /: {"supported_dtypes": set(_DTYPES)},
        "get_memory_info": torch.cuda.mem_get_info,
        "Graph": replacements["CUDAGraph"],
    }


def _of_any_device(base: type, on_gpu: type) -> type:
    """Return ``torch.Stream`` or ``torch.Event`` (``base``) that also makes the GPU's, which is the default device of
    both."""

    def make(cls: type, device: Any = None, *args: Any, **options: Any) -> Any:
        return on_gpu(**options) if device is None or is_cuda(device) else base(device, *args, **options)

    made = abc.ABCMeta(base.__name__, (base,), {"__new__": make, "__module__": base.__module__})
    made.register(on_gpu)
    return made


def grouped_on(original: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function by which optimisers sort tensors, which takes device tensors for those of meta."""
    return lambda *args: {(told(device), dtype): found for (device, dtype), found in original(*args).items()}


def subclass_on(original: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``torch.Tensor._make_subclass``, which leaves fake tensors of the GPU what they are to C++: of meta.

    Autograd asks C++ whose queue runs their backward, and in a CPU build there is none of a GPU.
    """

    @functools.wraps(original)
    def make(cls: type, data: torch.Tensor, *args: Any, **options: Any) -> torch.Tensor:
        if is_cuda(options.get("device_for_backend_keys")):
            options["dispatch_device"] = False
        if issubclass(cls, UninitializedTensorMixin) and isinstance(data, DeviceTensor):
            return for_device(original(cls, torch.empty(0, dtype=data.dtype, device="cpu"), *args))
        return original(cls, data, *args, **options)

    return make


def used_by_generated_code() -> list[tuple[Any, str, Any]]:
    """Return replacements for the C++ functions that code generated by TorchInductor calls; models imitate that
    code."""

    def empty_strided(size: Any, stride: Any, dtype: torch.dtype) -> torch.Tensor:
        return torch.empty_strided(size, stride, dtype=dtype, device="cuda")

    guards = torch._C._dynamo.guards
    return [(guards, "_empty_strided_cuda", empty_strided), (guards, "_reinterpret_tensor", reinterpret)]


WITHOUT_EFFECT = (
    "_cuda_emptyCache", "_cuda_ipc_collect", "_cuda_resetAccumulatedMemoryStats", "_cuda_setMemoryFraction",
    "_cuda_record_memory_history", "_cuda_setDevice",
)  # fmt: skip


def _native(link: DeviceLink) -> dict[str, Any]:
    """Return the functions of ``torch._C`` on which those of ``torch.cuda`` that are left as they are rest."""
    query = link.channel.query

    def other(name: str) -> Any:
        if not name.startswith(("_cuda_", "_nccl_")):
            raise AttributeError(f"module 'torch._C' has no attribute {name!r}")
        why = loading.NO_GROUP if name.startswith("_nccl_") else "is not offered on the simulated device"
        return loading.refusing(f"torch._C.{name} {why}")

    return {
        **{name: other(name) for name in dir(torch._C) if name.startswith(("_cuda_", "_nccl_"))},  # of CUDA builds
        **dict.fromkeys(WITHOUT_EFFECT, lambda *_: None),
        "__getattr__": other,
        "_cuda_getDevice": lambda: 0,
        "_cuda_getDeviceCount": lambda: 1,
        "_cuda_resetPeakMemoryStats": lambda device: query("reset_peak") and None,
        "_cuda_getCurrentRawStream": lambda device: torch.cuda.current_stream().cuda_stream,
        "_cuda_memoryStats": _memory_stats(query),
        "_cuda_memorySnapshot": lambda *_: {"segments": [], "device_traces": [], "allocator_settings": {}},
        "_cuda_getAllocatorBackend": lambda: "native",
        "_cuda_getMemoryFraction": lambda device: 1.0,
        "_cuda_getCurrentBlasHandle": lambda: 1,
        "_cuda_getCurrentSolverHandle": lambda: 1,
        "_cuda_getStreamFromExternal": lambda pointer, device: (pointer, 0, 1),
        "_cuda_CUDAAllocator_AllocatorState": object,
        "_cuda_setStream": lambda stream_id, **_: torch.cuda.set_stream(torch.cuda.Stream(stream_id=stream_id)),
        "_cuda_sleep": lambda cycles: query(f"sleep {int(cycles)}"),
        "_cuda_set_sync_debug_mode": lambda level: setattr(link, "sync_debug", level),
        "_cuda_get_sync_debug_mode": lambda: link.sync_debug,
        "_scatter": lambda tensor, devices, *_: (tensor.cuda(),),
        "_broadcast_coalesced": lambda tensors, *_: [tensors],
        "_has_cuda": True,
        **{f"_can_use_{name}_attention": takes_attention(name) for name in ("flash", "mem_efficient", "cudnn")},
    }


def compiler_interface(spec: GPUSpec, module: Any) -> list[tuple[Any, str, Any]]:
    """Return replacements for what TorchDynamo's ``device_interface`` took from ``torch.cuda`` when it was
    imported."""
    facts, interface = device_facts(spec), module.CudaInterface
    names = "current_device", "device_count", "get_device_properties", "is_bf16_supported"
    hidden = "exchange_device", "maybe_exchange_device"
    bound = {
        **{name: facts[name] for name in names},
        **{name: facts[f"_{name}"] for name in hidden},
        "synchronize": lambda device=None: None,
        "get_raw_stream": lambda device: 0,
    }
    return [(interface, name, staticmethod(value)) for name, value in bound.items()]


@contextmanager
def cuda_api_on(
    spec: GPUSpec, link: DeviceLink, compiles: Callable[..., Any] = loading.compile_eagerly
) -> Iterator[None]:
    """Replace the functions of ``torch.cuda`` that host code calls, and restore them on exit.

    ``compiles`` takes the place of ``torch.compile``.
    """
    base = torch._C.Generator

    class Generator(torch.Generator):  # type: ignore[misc]
        """``torch.Generator`` that also makes generators of the GPU."""

        def __new__(cls, device: Any = "cpu") -> Any:
            return DeviceGenerator(link, next(link.generator_numbers)) if is_cuda(device) else base(device)

    cuda = _replacements(spec, link, DeviceGenerator(link, 0))
    replaced: list[tuple[Any, str, Any]] = [(torch.cuda, name, value) for name, value in cuda.items()]
    replaced += [(torch.cuda.streams, name, cuda[name]) for name in ("Stream", "Event", "ExternalStream")]
    replaced += [(torch.cuda.random, "device_count", cuda["device_count"])]
    replaced += [(torch.cuda.graphs, "CUDAGraph", cuda["CUDAGraph"])]
    replaced += [(torch._C, name, value) for name, value in _native(link).items()]
    replaced += [(torch.accelerator, name, value) for name, value in _accelerator(cuda).items()]
    replaced += [
        (torch, "Generator", Generator),
        (torch, "Stream", _of_any_device(torch.Stream, cuda["Stream"])),
        (torch, "Event", _of_any_device(torch.Event, cuda["Event"])),
        # which makes a tensor to learn a device's index, below our modes
        (torch, "get_default_device", lambda ask=torch.get_default_device: CUDA if default_is_cuda() else ask()),
        (torch, "load", loading.load_on(torch.load)),
        (torch, "save", loading.save_on(torch.save)),
        (torch.UntypedStorage, "copy_", lambda to, one, *a, f=torch.UntypedStorage.copy_: f(to, one.cpu(), *a)),
        (torch.UntypedStorage, "to", loading.storage_to_on(torch.UntypedStorage.to)),
        (torch, "set_default_tensor_type", loading.default_type_on(torch.set_default_tensor_type)),
        (torch, "compile", compiles),
        (UninitializedTensorMixin, "materialize", loading.materialize_on(UninitializedTensorMixin.materialize)),
        (torch.autograd, "has_torch_function", lambda args: False),  # so that modes stay on during autograd.grad
        # both ends are this torch, and share the memory
        *((owner, "from_dlpack", unless_ours(torch.from_dlpack, _SHARED)) for owner in DLPACK),
        *((owner, "to_dlpack", unless_ours(torch.to_dlpack, lambda value: value)) for owner in DLPACK),
        (torch.cuda.nvtx, "_nvtx", _MARKS),
        (torch.autograd.profiler.emit_nvtx, "__enter__", lambda self: self),
        (torch.autograd.profiler.emit_nvtx, "__exit__", lambda self, *_: False),
        *((owner, "_foreach_supported_types", [torch.Tensor, torch.nn.Parameter, DeviceTensor]) for owner in FOREACH),
        (torch._C, "_group_tensors_by_device_and_dtype", grouped_on(torch._C._group_tensors_by_device_and_dtype)),
        (torch.Tensor, "_make_subclass", staticmethod(subclass_on(torch.Tensor._make_subclass))),
        (torch, "get_device_module", lambda device=None: torch.cuda),
        *used_by_generated_code(),
        (torch.utils, "swap_tensors", link.swap),
        (torch.nn.TransformerEncoder, "forward", encode_on(torch.nn.TransformerEncoder.forward)),
        (torch.cuda, "_compile_kernel", loading.refusing(f"torch.cuda._compile_kernel {NO_SOURCE}")),
        (torch.export, "export", loading.export_on(torch.export.export)),
        (torch.library.Library, "impl", impl_on(torch.library.Library.impl)),
        (torch._ops.OpOverload, "redispatch", redispatch_on(torch._ops.OpOverload.redispatch, link.dispatch)),
        (torch._library.triton, "is_wrap_triton_enabled", faking),  # launched, and recorded only while traced
        (torch.backends.cudnn, "is_available", lambda: True),
        (torch.backends.cudnn, "is_acceptable", lambda tensor: False),
        (torch.backends.cudnn, "version", lambda: CUDNN_VERSION),
        (torch.version, "cuda", "12.8" if spec.vendor == "nvidia" else None),
        (torch.version, "hip", None if spec.vendor == "nvidia" else "6.4"),
    ]
    if spec.vendor == "nvidia":
        replaced.append((ctypes.CDLL, "__init__", library_on(spec, link.channel.query, ctypes.CDLL.__init__)))
    if (compilers := sys.modules.get("torch._dynamo.device_interface")) is not None:
        replaced += compiler_interface(spec, compilers)
    if torch.distributed.is_available():
        start = torch.distributed.init_process_group
        replaced.append((torch.distributed, "init_process_group", loading.process_group_on(start)))
    profiler = torch.autograd.profiler.profile
    replaced.append((profiler, "__init__", loading.profile_on(profiler.__init__)))
    modules = loading.CppExtension("torch.utils.cpp_extension"), loading.Proton("triton.profiler")
    instead = {module.__name__: module for module in modules}
    replaced.append((torch.utils, "cpp_extension", instead["torch.utils.cpp_extension"]))
    before = {name: sys.modules.get(name) for name in instead}
    sys.modules.update(instead)
    found = [(owner, name) for owner, name, _ in replaced if hasattr(owner, name)]
    originals = [(owner, name, vars(owner).get(name, getattr(owner, name))) for owner, name in found]
    try:
        with replaced_attributes(replaced):
            link.originals = originals
            yield
    finally:
        for name, module in before.items():
            if module is None:
                sys.modules.pop(name, None)
            else:
                sys.modules[name] = module


@contextmanager
def replaced_attributes(replaced: list[tuple[Any, str, Any]]) -> Iterator[None]:
    """Set (owner, name, value) for the block; attributes that were not there are deleted again."""
    missing = object()
    saved = [(owner, name, vars(owner).get(name, missing)) for owner, name, _ in replaced]
    try:
        for owner, name, value in replaced:
            setattr(owner, name, value)
        yield
    finally:
        for owner, name, value in reversed(saved):
            if value is missing:
                delattr(owner, name)
            else:
                setattr(owner, name, value)
