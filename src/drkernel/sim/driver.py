"""Triton's view of the simulated GPU: a driver object and a compile step that stops at TTIR.

``kernel[grid](...)`` runs Triton's own JIT machinery unmodified (binding, specialisation, constexprs, heuristics,
autotune, hooks). Only two things are ours: the active driver, and ``triton.compile``, which runs the front end and
returns a kernel whose ``run`` sends a :class:`LaunchCommand` to the device.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from drkernel.sim.frontend import ttir_text
from drkernel.sim.protocol import LaunchCommand, Ref
from drkernel.sim.spec import GPUSpec

if TYPE_CHECKING:
    from drkernel.sim.tensor import DeviceLink


class SimDriver:
    """What Triton asks a driver for. Device id is a string, so that caches of real devices are never mixed up."""

    def __init__(self, spec: GPUSpec, link: DeviceLink):
        self.spec = spec
        self.link = link
        self.utils = _Utils(spec)
        self.launcher_cls = None

    def get_current_target(self) -> Any:
        from triton.backends.compiler import GPUTarget

        return GPUTarget(self.spec.backend, self.spec.arch, self.spec.warp_size)

    def get_current_device(self) -> Any:
        return f"sim:{self.spec.name}"

    def set_current_device(self, device: Any) -> None: ...

    def get_current_stream(self, device: Any = None) -> int:
        return 0

    def get_active_torch_device(self) -> Any:
        import torch

        return torch.device("cuda", 0)

    def get_device_interface(self) -> Any:
        import torch

        return torch.cuda

    def get_empty_cache_for_benchmark(self) -> Any:
        import torch

        return torch.empty(1, dtype=torch.int, device="cuda")

    def clear_cache(self, cache: Any) -> None: ...

    def map_python_to_cpp_type(self, ty: str) -> str:
        return ty

    def get_benchmarker(self) -> Callable[..., Any]:
        """Autotune's clock: modelled milliseconds of one call."""

        def benchmark(call: Callable[[], Any], *, quantiles: Any = None, **_: Any) -> Any:
            before = self.link.channel.query("device_seconds")
            call()
            elapsed = (self.link.channel.query("device_seconds") - before) * 1e3
            return [elapsed] * len(quantiles) if quantiles else elapsed

        return benchmark


class _Utils:
    """Device properties as Triton's launchers and tutorials ask for them."""

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


@dataclass(frozen=True)
class _Metadata:
    """Compile-time facts that host code reads from a kernel."""

    name: str
    num_warps: int
    num_stages: int
    num_ctas: int
    shared: int
    target: Any
    hash: str


class SimKernel:
    """A kernel after Triton's front end; stands where Triton's ``CompiledKernel`` would."""

    def __init__(self, driver: SimDriver, src: Any, options: Any, ttir: str):
        self._driver = driver
        self.src = src
        self.asm = {"ttir": ttir}
        self.hash = hashlib.sha256(ttir.encode()).hexdigest()
        self.name = src.name
        self.metadata = _Metadata(
            src.name, options.num_warps, options.num_stages, options.num_ctas, 0, driver.get_current_target(), self.hash
        )
        self.function = None
        self.packed_metadata = None
        self.n_regs = self.n_spills = None
        self._identity = _identity(src.fn)
        self._constexprs = {
            ".".join(src.fn.arg_names[k] if n == 0 else str(k) for n, k in enumerate(path)): repr(value)
            for path, value in src.constants.items()
        }

    def launch_metadata(self, grid: Any, stream: Any, *args: Any) -> None:
        return None

    def _init_handles(self) -> None: ...

    def run(self, grid_0: int, grid_1: int, grid_2: int, stream: Any, *rest: Any) -> None:
        """Launch. ``rest`` is (function, packed_metadata, launch_metadata, enter_hook, exit_hook, *bound_args)."""
        bound = rest[5:]
        args: list[Any] = []
        for type_name, value in zip(self.src.signature.values(), bound, strict=True):
            _flatten(type_name, value, args)
        self._driver.link.channel.launch(
            LaunchCommand(
                name=self.name,
                identity=self._identity,
                ttir=self.asm["ttir"],
                grid=(int(grid_0), int(grid_1), int(grid_2)),
                args=tuple(args),
                num_warps=self.metadata.num_warps,
                num_stages=self.metadata.num_stages,
                constexprs=self._constexprs,
            )
        )

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., None]:
        full = (*grid, 1, 1)[:3]
        return lambda *args, stream=None: self.run(*full, stream, None, None, None, None, None, *args)


def _flatten(type_name: Any, value: Any, out: list[Any]) -> None:
    """The arguments that the TTIR function takes, in order: constants are folded, tuples and descriptors spread."""
    if type_name == "constexpr":
        return
    if isinstance(type_name, tuple):
        for inner_type, inner in zip(type_name, value, strict=True):
            _flatten(inner_type, inner, out)
    elif isinstance(type_name, str) and type_name.startswith("tensordesc"):
        out += [_plain(value.base), *map(int, value.shape), *map(int, value.strides), value.padding == "nan"]
        out += [*map(int, value.shape), *map(int, value.strides)]
    else:
        out.append(_plain(value))


def _plain(value: Any) -> Any:
    handle = getattr(value, "_handle", None)
    if handle is not None:
        return Ref(handle)
    if hasattr(value, "data_ptr"):
        import torch

        if isinstance(value, torch.Tensor):
            raise ValueError("Pointer argument cannot be accessed from Triton (cpu tensor?)")
        return value.data_ptr()
    return value


def _identity(fn: Any) -> str:
    """Who a kernel is: module, qualified name and a hash of its source, never its bare name."""
    python_fn = fn.fn
    digest = hashlib.sha256(fn.src.encode()).hexdigest()[:12]
    return f"{python_fn.__module__}.{python_fn.__qualname__}@{digest}"


@contextmanager
def triton_on(driver: SimDriver) -> Iterator[None]:
    """Make ``driver`` Triton's active one, and let compilation stop at TTIR."""
    import triton.compiler
    import triton.compiler.compiler as compiler_module
    from triton.runtime import driver as triton_driver

    def compile_to_ttir(src: Any, target: Any = None, options: Any = None, **_: Any) -> SimKernel:
        target = target or driver.get_current_target()
        backend = compiler_module.make_backend(target)
        parsed = backend.parse_options({**(options or {}), **src.parse_options()})
        return SimKernel(driver, src, parsed, ttir_text(src, target, parsed))

    saved_compile = (triton.compiler.compile, compiler_module.compile, triton.compile)
    saved_driver = triton_driver._active if hasattr(triton_driver, "_active") else None
    triton.compiler.compile = compiler_module.compile = triton.compile = compile_to_ttir
    triton_driver.set_active(driver)
    try:
        yield
    finally:
        triton.compiler.compile, compiler_module.compile, triton.compile = saved_compile
        triton_driver._active = saved_driver
