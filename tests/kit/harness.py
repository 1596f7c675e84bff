"""Runs ``@triton.jit`` kernels on CPU tensors through the executor alone: no device, no cost model.
With them, see ``launches.py``.

``with executing() as log:`` makes ``kernel[grid](...)`` compile to TTIR and run natively on the tensors' own memory.
"""

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import torch

from drkernel.sim.host.triton_frontend import front_end
from drkernel.sim.host.triton_kernel import SimDriver
from drkernel.sim.spec import get_spec
from ttir_executor.allocations import MemoryMap
from ttir_executor.compiled import Checks, LaunchResult, SimFinding, compile_ttir


@dataclass
class Log:
    """What ran inside one ``executing`` block."""

    checks: Checks = field(default_factory=Checks)
    options: dict[str, Any] = field(default_factory=dict)
    """further keyword arguments of ``CompiledKernel.run``"""
    results: list[LaunchResult] = field(default_factory=list)
    ttir: list[str] = field(default_factory=list)
    fresh: set[int] = field(default_factory=set)
    """storage addresses that count as never written"""
    reachable: list[torch.Tensor] = field(default_factory=list)
    """tensors that kernels reach by addresses in memory"""

    @property
    def findings(self) -> list[SimFinding]:
        """All findings, in order."""
        return [finding for result in self.results for finding in result.findings]

    def kinds(self) -> list[str]:
        """Kinds of the findings that are errors."""
        return [finding.kind for finding in self.findings if finding.severity == "error"]


class _Kernel:
    """Stands where Triton's ``CompiledKernel`` would."""

    def __init__(self, log: Log, src: Any, options: Any, ttir: str):
        self.log, self.src, self.name, self.ttir = log, src, src.name, ttir
        self.metadata = SimpleNamespace(num_warps=options.num_warps, num_stages=options.num_stages, shared=0)
        self.asm = {"ttir": ttir}
        self.function = self.packed_metadata = None

    def launch_metadata(self, *_: Any) -> None:
        return None

    def _init_handles(self) -> None: ...

    def run(self, x: int, y: int, z: int, stream: Any, *rest: Any) -> None:
        memory, args = MemoryMap(), []
        seen: set[int] = set()
        for type_name, value in zip(self.src.signature.values(), rest[5:], strict=True):
            _flatten(type_name, value, args, memory, seen, self.log.fresh)
        for tensor in self.log.reachable:
            _enter(tensor, memory, seen, self.log.fresh)
        self.log.ttir.append(self.ttir)
        kernel = compile_ttir(self.ttir, name=self.name)
        self.log.results.append(kernel.run((x, y, z), args, memory, checks=self.log.checks, **self.log.options))


def _flatten(type_name: Any, value: Any, out: list, memory: MemoryMap, seen: set[int], fresh: set[int]) -> None:
    if type_name == "constexpr":
        return
    if isinstance(type_name, tuple):
        for inner_type, inner in zip(type_name, value, strict=True):
            _flatten(inner_type, inner, out, memory, seen, fresh)
    elif isinstance(type_name, str) and type_name.startswith("tensordesc"):
        _flatten("*", value.base, out, memory, seen, fresh)
        out += [*map(int, value.shape), *map(int, value.strides), value.padding == "nan"]
        if hasattr(value, "round_f32_to_tf32"):  # since Triton 3.7
            out.append(bool(value.round_f32_to_tf32))
        out += [*map(int, value.shape), *map(int, value.strides)]
    elif isinstance(value, torch.Tensor):
        _enter(value, memory, seen, fresh)
        out.append(value.data_ptr())
    else:
        out.append(value)


def _enter(tensor: torch.Tensor, memory: MemoryMap, seen: set[int], fresh: set[int]) -> None:
    storage = tensor.untyped_storage()
    base = storage.data_ptr()
    if storage.nbytes() and base not in seen:
        seen.add(base)
        memory.add(base, storage.nbytes(), initialized=base not in fresh)


_drivers = itertools.count()


class _Driver(SimDriver):
    """A driver whose device has a name of its own: Triton keeps kernels by that, and an address comes again."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._name = f"executor:{next(_drivers)}"

    def get_active_torch_device(self) -> Any:
        return torch.device("cpu")

    def get_benchmarker(self) -> Callable[..., Any]:
        def benchmark(call: Callable[[], Any], *, quantiles: Any = None, **_: Any) -> Any:
            call()
            return [1.0] * len(quantiles) if quantiles else 1.0

        return benchmark

    def get_current_device(self) -> Any:
        return self._name

    def get_device_interface(self) -> Any:
        return SimpleNamespace(synchronize=lambda: None)

    def get_empty_cache_for_benchmark(self) -> Any:
        return torch.empty(1, dtype=torch.int)


@contextmanager
def executing(checks: Checks | None = None, gpu: str = "h100", **options: Any) -> Iterator[Log]:
    """Let Triton launches run through the executor, on CPU tensors."""
    import triton.compiler
    import triton.compiler.compiler as compiler_module
    from triton.runtime import driver as triton_driver

    log = Log(checks or Checks(), options)
    driver = _Driver(get_spec(gpu), None)  # type: ignore[arg-type]

    def compile_to_ttir(src: Any, target: Any = None, options: Any = None, **_: Any) -> _Kernel:
        target = target or driver.get_current_target()
        backend = compiler_module.make_backend(target)
        parsed = backend.parse_options({**(options or {}), **src.parse_options()})
        return _Kernel(log, src, parsed, front_end(src, target, parsed)[0])

    saved = (triton.compiler.compile, compiler_module.compile, triton.compile)
    active = triton_driver._active
    triton.compiler.compile = compiler_module.compile = triton.compile = compile_to_ttir
    triton_driver.set_active(driver)
    try:
        yield log
    finally:
        triton.compiler.compile, compiler_module.compile, triton.compile = saved
        triton_driver._active = active
