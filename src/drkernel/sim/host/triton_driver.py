"""Triton's view of the simulated GPU: a driver object and a compile step that stops at TTIR.

``kernel[grid](...)`` runs Triton's own JIT machinery unmodified (binding, specialisation, constexprs, heuristics,
autotune, hooks). Replaced are the active driver, ``triton.compile``, which runs the front end and returns a
:class:`SimKernel` whose ``run`` sends a :class:`LaunchCommand` to the device, and the clocks of ``triton.testing``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from drkernel.sim.spec import GPUSpec

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

    def get_benchmarker(self, *, settled: bool = False) -> Callable[..., Any]:
        """Return autotune's clock, with the signature of ``triton.testing.do_bench``: modelled milliseconds of one
        call.

        The model has no noise, so one call after one L2 flush suffices, whatever the number of repetitions requested.
        ``settled``: measure a second call where the first did what it does only once, as Triton's own benchmark does,
        which runs the call before it measures. Kernels are launched for their times: a tuner's need no results, a
        benchmark's are made when something looks at them.
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
        return (query("device_seconds") - before) * 1e3


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
