"""A kernel after Triton's front end, used in place of Triton's ``CompiledKernel``: binds arguments and launches.

Triton's view of the simulated GPU: a driver object and a compile step that stops at TTIR.

``kernel[grid](...)`` runs Triton's own JIT machinery unmodified (binding, specialisation, constexprs, heuristics,
autotune, hooks). Replaced are the active driver, ``triton.compile``, which runs the front end and returns a
:class:`SimKernel` whose ``run`` sends a :class:`LaunchCommand` to the device, and the clocks of ``triton.testing``.
"""

from __future__ import annotations

import hashlib
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from operator import index
from typing import TYPE_CHECKING, Any

import torch

from drkernel.sim.host.cuda_api import replaced_attributes
from drkernel.sim.host.loading import CublasLt
from drkernel.sim.host.modes import MappedHost
from drkernel.sim.host.triton_frontend import front_end, ir_source, warm
from drkernel.sim.spec import GPUSpec
from drkernel.sim.target import TargetCompileError
from drkernel.sim.wire.commands import LaunchCommand, LaunchRefused, Ref, UnsupportedOp

if TYPE_CHECKING:
    from drkernel.sim.host.tensor import DeviceLink


class SimDriver:
    """The driver interface that Triton uses."""

    def __init__(self, spec: GPUSpec, link: DeviceLink):
        self.spec = spec
        self.link = link
        self.utils = _Utils(spec)
        self.launcher_cls = None
        self.first_times = 0
        """counts what a second call of the same code would not repeat: kernels compiled, benchmarks run to tune"""

    @classmethod
    def is_active(cls) -> bool:
        """Return False: Triton must not select this driver by itself, because it is set explicitly."""
        return False

    def get_current_target(self) -> Any:
        """Triton's name of the GPU that kernels are specialised for."""
        from triton.backends.compiler import GPUTarget

        return GPUTarget(self.spec.backend, self.spec.arch, self.spec.warp_size)

    def get_current_device(self) -> Any:
        """Key of Triton's kernel caches: there is one device."""
        return 0

    def set_current_device(self, device: Any) -> None:
        """Do nothing: there is one device."""

    def get_current_stream(self, device: Any = None) -> int:
        """The default stream."""
        return 0

    def get_active_torch_device(self) -> Any:
        """PyTorch's name of the device."""
        import torch

        return torch.device("cuda", 0)

    def get_device_interface(self) -> Any:
        """Return the module with events and streams."""
        import torch

        return torch.cuda

    def get_empty_cache_for_benchmark(self) -> Any:
        """Return the buffer that benchmarks clear to empty L2; :meth:`clear_cache` does not need it."""
        return None

    def clear_cache(self, cache: Any) -> None:
        """Empty L2 as benchmarks do: by a modelled fill that evicts everything."""
        self.link.channel.query("flush")

    def map_python_to_cpp_type(self, ty: str) -> str:
        """Return the type unchanged: no launcher is generated, so no type is translated."""
        return ty

    def get_benchmarker(self, *, settled: bool = False, events: bool = True) -> Callable[..., Any]:
        """Return autotune's clock, with the signature of ``triton.testing.do_bench``: modelled milliseconds of one
        call.

        The model has no noise, so one call after one L2 flush suffices, whatever the number of repetitions requested.
        ``settled``: measure a second call where the first did what it does only once, as Triton's own benchmark does,
        which runs the call before it measures. ``events``: two stand around the call and take time. Kernels are
        launched for their times: a tuner's need no results, a benchmark's are made when something looks at them.
        """

        def do_bench(
            call: Callable[[], Any],
            warmup: float = 25,
            rep: float = 100,
            grad_to_none: Any = None,
            quantiles: Any = None,
            return_mode: str = "mean",
        ) -> Any:
            from triton.runtime import driver

            # A tuner keeps its clock as long as its kernel lives, which may be longer than the device that gave it.
            clock = driver.active if isinstance(driver.active, SimDriver) else self
            before = clock.first_times
            with clock.link.trials("benchmark" if settled else "tuning"):
                elapsed = clock._milliseconds(call, grad_to_none or ())
                if settled and clock.first_times != before:
                    elapsed = clock._milliseconds(call, grad_to_none or ())
            clock.first_times += 1
            if events and elapsed:
                elapsed += clock.spec.event_overhead * 1e3
            if quantiles is not None:
                return [elapsed] * len(quantiles) if len(quantiles) > 1 else elapsed
            return [elapsed] if return_mode == "all" else elapsed

        return do_bench

    def _milliseconds(self, call: Callable[[], Any], without_gradient: Iterable[Any]) -> float:
        """Modelled device time of one call after an L2 flush; gradients of these tensors are dropped first."""
        for tensor in without_gradient:
            tensor.grad = None
        query = self.link.channel.query
        query("flush")
        before = query("device_seconds")
        call()
        return round((query("device_seconds") - before) * 1e3, 12)  # beyond, it is the rounding of a sum that grows


class _Utils:
    """Device properties in the form that Triton's launchers and tutorials expect."""

    def __init__(self, spec: GPUSpec):
        self.spec = spec

    def get_device_properties(self, device: Any) -> dict[str, int]:
        spec = self.spec
        return {
            "max_shared_mem": spec.max_smem_per_block,
            "max_num_regs": spec.regs_per_sm,
            "multiprocessor_count": spec.sm_count,
            "warpSize": spec.warp_size,
            "sm_clock_rate": int(spec.clock_hz / 1e3),
            "mem_clock_rate": int(spec.clock_hz / 1e3),
            "mem_bus_width": 5120,
        }

    def set_printf_fifo_size(self, size: int) -> None: ...


CPU_TENSOR = "Pointer argument (at {index}) cannot be accessed from Triton (cpu tensor?)"
MAX_THREADS = 1024
BINARIES = ("cubin", "hsaco")


class _Assembly(dict[str, Any]):
    """The texts of a kernel by stage; those of the target are compiled when asked for, with the backend's options."""

    def __init__(self, ttir: str, options: dict[str, Any]):
        super().__init__(ttir=ttir)
        self._options = options

    def __missing__(self, stage: str) -> Any:
        compiles = _active_driver().link.text_of_stage
        if compiles is None or stage in BINARIES:
            raise UnsupportedOp(f"kernels on the simulated device have no {stage!r}: they run as Triton's own IR")
        try:
            self[stage] = compiles(self["ttir"], self._options, stage)
        except TargetCompileError as error:
            raise (KeyError(stage) if error.kind == "KeyError" else error) from None
        return self[stage]

    def __contains__(self, stage: object) -> bool:
        return stage in ("ttgir", "llir", "ptx") or super().__contains__(stage)

    def get(self, stage: str, default: Any = None) -> Any:
        try:
            return self[stage]
        except KeyError:
            return default


class _Metadata:
    """Compile-time facts that host code reads from a kernel: Triton's options, and what the target needs."""

    def __init__(self, kernel: SimKernel, options: Any, target: Any):
        self.name = kernel.name
        self.hash = kernel.hash
        self.target = target
        self._kernel = kernel
        self._options = options

    @property
    def shared(self) -> int:
        """Shared memory of one program; asking for it compiles the kernel for the GPU."""
        return self._kernel.resources()[2]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._options, name)


class SimKernel:
    """One specialisation of a jitted function.

    Args:
        src: ``triton.compiler.ASTSource``, or ``IRSource`` of a file of TTIR.
        target: ``GPUTarget`` of the device.
        options: the backend's parsed options.

    Raises:
        triton.CompilationError: what a GPU user would see for the same kernel.
    """

    def __init__(self, src: Any, target: Any, options: Any):
        if hasattr(src, "fn"):
            src.hash()  # notes the global values that go into the kernel: Triton refuses launches when they change
        text, makes_descriptors = front_end(src, target, options)
        self.src = src
        self.name = _name_in(text) or src.name
        self.hash = hashlib.sha256(text.encode()).hexdigest()
        plain = {name: value for name, value in vars(options).items() if isinstance(value, bool | int | float | str)}
        self.asm: dict[str, Any] = _Assembly(text, plain)
        self.metadata = _Metadata(self, options, target)
        self.metadata_group: dict[str, Any] = {}
        self.function = None
        self.packed_metadata = None
        self._resources: tuple[int, int, int] | None = None
        self._is_loaded = False
        fn = getattr(src, "fn", None)
        self._identity = f"{src.path}@{self.hash[:12]}" if fn is None else _identity(fn)
        self._num_warps, self._num_stages = int(options.num_warps), int(options.num_stages)
        self._threads = self._num_warps * target.warp_size
        self._constexprs = {
            ".".join(src.fn.arg_names[k] if n == 0 else str(k) for n, k in enumerate(path)): _text(value)
            for path, value in getattr(src, "constants", {}).items()
        }
        self._types = tuple(src.signature.values())
        self._scratch = target.backend == "cuda" and target.arch >= 90 and makes_descriptors

    @property
    def n_regs(self) -> int:
        """Registers per thread; asking for it compiles the kernel for the GPU."""
        return self.resources()[0]

    @property
    def n_spills(self) -> int:
        """Spilled words per thread; asking for it compiles the kernel for the GPU."""
        return self.resources()[1]

    @property
    def n_max_threads(self) -> int:
        """Threads that one program may have."""
        return MAX_THREADS

    def resources(self) -> tuple[int, int, int]:
        """(registers, spilled words, shared bytes); raises ``OutOfResources`` and what else the compiler raises."""
        if self._resources is None:
            channel = _active_driver().link.channel
            with _as_triton_errors():
                self._resources = channel.resources(self.asm["ttir"], self._num_warps, self._num_stages)
        return self._resources

    def _init_handles(self) -> None:
        """Call the hooks around Triton's loading of a binary, once; there is none, and resources are computed on
        request."""
        if self._is_loaded:
            return
        from triton import knobs

        self._is_loaded = True
        for hook in (knobs.runtime.kernel_load_start_hook, knobs.runtime.kernel_load_end_hook):
            if _hooked(hook):
                hook(None, self.function, self.name, self.metadata_group, self.hash)

    def launch_metadata(self, grid: Any, stream: Any, *args: Any) -> Any:
        """Return the metadata passed to launch hooks; None if there are no hooks."""
        from triton import knobs
        from triton.compiler.compiler import LazyDict

        if not _hooked(knobs.runtime.launch_enter_hook) and not _hooked(knobs.runtime.launch_exit_hook):
            return None
        facts = LazyDict({"name": self.name, "function": self.function, "stream": stream})
        fn = getattr(self.src, "fn", None)
        if fn is not None and fn.launch_metadata is not None:
            named = dict(zip(fn.arg_names, args, strict=False))
            facts.add(fn.launch_metadata, (grid, self.metadata, named))
        return facts

    def run(
        self, grid_0: int, grid_1: int, grid_2: int, stream: Any, function: Any, packed_metadata: Any,
        launch_metadata: Any, enter_hook: Any, exit_hook: Any, *bound: Any,
    ) -> None:  # fmt: skip
        """Launch on the active device, with the arguments of Triton's own launchers."""
        driver = _active_driver()
        self._init_handles()
        if self._threads > MAX_THREADS:
            from triton.runtime.errors import OutOfResources

            raise OutOfResources(self._threads, MAX_THREADS, "threads")
        args: list[Any] = []
        mapped = MappedHost(driver.link)
        lacks = any(kind != "constexpr" for kind in self._types[len(bound) :])  # the launcher skips constants unseen
        for type_name, value in zip(self._types, bound, strict=lacks):
            _flatten(type_name, mapped.on_device(value), args)
        if self._scratch:
            _require_allocator()
        if _hooked(enter_hook):
            enter_hook(launch_metadata)
        command = LaunchCommand(
            name=self.name, identity=self._identity, ttir=self.asm["ttir"],
            grid=(index(grid_0), index(grid_1), index(grid_2)), args=tuple(args), num_warps=self._num_warps,
            num_stages=self._num_stages, constexprs=self._constexprs,
        )  # fmt: skip
        with _as_triton_errors():
            driver.link.channel.launch(command)
        mapped.write_back()
        if _hooked(exit_hook):
            exit_hook(launch_metadata)

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., None]:
        from triton import knobs

        full = (*grid, 1, 1)[:3]

        def runner(*args: Any, stream: Any = None) -> None:
            facts = self.launch_metadata(grid, stream, *args)
            hooks = knobs.runtime.launch_enter_hook, knobs.runtime.launch_exit_hook
            self.run(*full, stream, None, None, facts, *hooks, *args)

        return runner


def _name_in(ttir: str) -> str:
    """The name of the kernel in its text, which ``@triton.jit(repr=...)`` may have chosen."""
    found = re.search(r'tt\.func public @(?:"([^"]+)"|([\w$.]+))', ttir)
    return (found[1] or found[2]) if found else ""


def _active_driver() -> SimDriver:
    """Return the driver of the currently active device; Triton keeps kernels longer than a device lives."""
    from triton.runtime import driver

    active = driver._active
    if not isinstance(active, SimDriver):
        raise RuntimeError("this kernel was compiled for a simulated device; use it inside 'with sim.device(...)'")
    return active


class _as_triton_errors:
    """Converts the device's launch refusals to the exceptions that Triton raises on a GPU (autotune skips such
    configs)."""

    def __enter__(self) -> None: ...

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if not isinstance(error, LaunchRefused):
            return
        from triton.runtime import errors

        name, _, message = str(error).partition(": ")
        found = re.search(r"out of resource: ([\w ]+), Required: (\d+), Hardware limit: (\d+)", message)
        if name == "OutOfResources" and found is not None:
            raise errors.OutOfResources(int(found[2]), int(found[3]), found[1]) from None
        raise getattr(errors, name, RuntimeError)(message) from None


def _flatten(type_name: Any, value: Any, out: list[Any]) -> None:
    """Append the arguments that the TTIR function takes, in order: constants are folded, tuples and descriptors
    expanded."""
    if type_name == "constexpr":
        return
    if isinstance(type_name, tuple):
        for inner_type, inner in zip(type_name, value, strict=True):
            _flatten(inner_type, inner, out)
    elif isinstance(type_name, str) and type_name.startswith("tensordesc"):
        sizes, strides = [*map(int, value.shape)], [*map(int, value.strides)]
        out += [_plain(value.base, len(out)), *sizes, *strides, value.padding == "nan"]
        if hasattr(value, "round_f32_to_tf32"):  # from Triton 3.7 on
            out.append(bool(value.round_f32_to_tf32))
        out += [*sizes, *strides]
    else:
        out.append(_plain(value, len(out)))


def _plain(value: Any, index: int) -> Any:
    handle = getattr(value, "_handle", None)
    if handle is not None:
        return Ref(handle)
    if isinstance(value, (int, float)):
        return value
    if value is None:
        return 0
    if hasattr(value, "data_ptr"):
        wrapped = getattr(getattr(value, "base", None), "_handle", None)  # by triton.reinterpret
        if wrapped is not None:
            return Ref(wrapped)
        address = value.data_ptr()
        if address == 0 or (not isinstance(value, torch.Tensor) and isinstance(address, int)):
            return address  # none, or of what stands for a tensor: the launch finds the storage that it lies in
        raise ValueError(CPU_TENSOR.format(index=index))
    raise TypeError(f"kernel argument {index} is a {type(value).__name__}: neither a number nor a tensor")


def _text(value: Any) -> str:
    """Format a constexpr for the record; functions by name."""
    return getattr(value, "__name__", None) or repr(value)


def _hooked(hook: Any) -> bool:
    return hook is not None and (not hasattr(hook, "calls") or bool(hook.calls))


def _require_allocator() -> None:
    """Fail as a launch on the GPU does when scratch memory is needed and no allocator is set."""
    from triton.runtime import _allocation

    if isinstance(_allocation._allocator.get(), _allocation.NullAllocator):
        _allocation.NullAllocator()(0, 0, None)


def _identity(fn: Any) -> str:
    """Return a kernel's identity: module, qualified name and a hash of its source, never its bare name."""
    python_fn = fn.fn
    digest = hashlib.sha256(fn.src.encode()).hexdigest()[:12]
    return f"{python_fn.__module__}.{python_fn.__qualname__}@{digest}"


@contextmanager
def triton_on(driver: SimDriver) -> Iterator[None]:
    """Make ``driver`` Triton's active driver, stop compilation at TTIR, and let benchmarks read the modelled clock."""
    import triton
    import triton.compiler.compiler as compiler_module
    import triton.testing
    from triton._C import libtriton
    from triton.runtime import driver as triton_driver

    warm()
    original = compiler_module.compile

    def compile(src: Any, target: Any = None, options: Any = None, *args: Any, **kwargs: Any) -> Any:
        # jitted functions keep what they compiled with: outside of this block they must get Triton's own compiler
        active = triton_driver._active
        if not isinstance(active, SimDriver):
            return original(src, target, options, *args, **kwargs)
        own = active.get_current_target()
        if target is not None and target != own:
            return original(src, target, options, *args, **kwargs)  # for its text: it cannot be launched on this card
        active.first_times += 1
        backend = compiler_module.make_backend(own)
        source = ir_source(src, backend) if isinstance(src, str) else src
        made = backend.parse_options({**(options or {}), **source.parse_options()})
        timer, kernel = compiler_module.CompileTimer(), SimKernel(source, own, made)
        if (told := triton.knobs.compilation.listener) is not None:
            told(src=source, metadata=dict(vars(made)), metadata_group={}, times=timer.end(), cache_hit=False)
        return kernel

    benchmark = driver.get_benchmarker(settled=True)
    without_events = driver.get_benchmarker(settled=True, events=False)

    def do_bench_cudagraph(call: Any, rep: float = 20, *args: Any, **kwargs: Any) -> Any:
        return without_events(call, 25, rep, *args, **kwargs)

    own_caches = _caches_of(f"sim:{driver.spec.name}")
    replaced: list[tuple[Any, str, Any]] = [
        (triton.runtime.jit.JITFunction, "device_caches", own_caches),
        (triton, "compile", compile),
        (triton.compiler, "compile", compile),
        (compiler_module, "compile", compile),
        (triton.testing, "do_bench", benchmark),
        (triton.testing, "do_bench_cudagraph", do_bench_cudagraph),
        (libtriton.nvidia.cublas, "CublasLt", CublasLt),
        (libtriton.amd.hipblas, "HipblasLt", CublasLt),
    ]
    saved_driver = triton_driver._active
    try:
        with replaced_attributes(replaced):
            triton_driver.set_active(driver)
            yield
    finally:
        triton_driver._active = saved_driver


def _caches_of(card: str) -> property:
    """``JITFunction.device_caches`` while a card is simulated: tables of its own for each card, and Triton's for GPUs.

    Both number their devices from 0, and Triton reads a device's target only once.
    """

    def tables(self: Any) -> dict[str, Any]:
        found: dict[str, Any] = vars(self).setdefault("_simulated_caches", {})
        return found

    def caches(self: Any) -> Any:
        return tables(self).setdefault(card, defaultdict(self.create_binder))

    def put(self: Any, value: Any) -> None:
        vars(self)["device_caches"] = value

    return property(caches, put)
