"""Makes TorchDynamo and TorchInductor of a CPU build of PyTorch generate code for a simulated GPU.

Both ask ``torch.cuda`` what the GPU can do and then generate text; no driver is needed for that. Answers come from the
card's data sheet, tensors are fake ones on ``cuda:0``, and whatever would be measured on the GPU is modelled instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from drkernel.sim.host.cuda_api import compiler_interface, device_facts, replaced_attributes
from drkernel.sim.host.fakes import guard_nothing
from drkernel.sim.spec import GPUSpec

ANSWERED = (
    "is_available", "is_initialized", "device_count", "current_device", "get_device_name", "get_device_capability",
    "get_device_properties", "get_arch_list", "is_bf16_supported", "_lazy_init", "_exchange_device",
    "_maybe_exchange_device", "device",
)  # fmt: skip
"""functions of ``torch.cuda`` that the compilers ask"""


@contextmanager
def believing(spec: GPUSpec, benchmark: Callable[..., float]) -> Iterator[None]:
    """Dynamo and Inductor compile for ``spec`` within the block, in this thread, without child processes.

    ``benchmark(call)`` gives the milliseconds of a call, for what Inductor decides by measuring.
    """
    import torch._inductor.config as config

    from drkernel.sim.host.triton_frontend import warm

    warm()
    guard_nothing()
    with (
        replaced_attributes([*_cuda(spec), *_compilers(spec, benchmark)]),
        config.patch(
            compile_threads=1, fx_graph_cache=False, fx_graph_remote_cache=False, force_disable_caches=True,
            use_static_triton_launcher=False, shape_padding=False,
        ),
    ):  # fmt: skip
        yield


def _cuda(spec: GPUSpec) -> list[tuple[Any, str, Any]]:
    facts = device_facts(spec)
    state = torch.zeros(16, dtype=torch.uint8)
    return [
        *((torch.cuda, name, facts[name]) for name in ANSWERED),
        (torch.cuda, "synchronize", lambda device=None: None),
        (torch.cuda, "get_rng_state", lambda device=None: state),
        (torch.cuda, "set_rng_state", lambda state, device=None: None),
        (torch._C, "_conv_determine_backend_memory_format", _layout_of_cudnn),
        (torch._C, "_cuda_getDevice", lambda: 0),
        (torch._C, "_cuda_setDevice", lambda device: None),
        (torch._C, "_cuda_getCurrentRawStream", lambda device: 0),
        (torch.version, "cuda", "12.8" if spec.vendor == "nvidia" else None),
        (torch.version, "hip", None if spec.vendor == "nvidia" else "6.4"),
    ]


def _layout_of_cudnn(x: torch.Tensor, weight: torch.Tensor, backend: Any) -> torch.memory_format:
    """The layout of a convolution's result on a GPU, and on the device: channels last where an operand is."""
    last = {4: torch.channels_last, 5: torch.channels_last_3d}.get(x.dim())
    operands = () if last is None or torch.float64 in (x.dtype, weight.dtype) else (x, weight)
    chosen = any(torch._prims_common.suggest_memory_format(one) is last for one in operands)
    return last if chosen and last is not None else torch.contiguous_format


class _ConstantsOnHost(TorchDispatchMode):
    """Make on the host what a compiler makes on the GPU to learn its value: constants that it folds."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        device = kwargs.get("device")
        if device is not None and torch.device(device).type == "cuda":
            kwargs["device"] = torch.device("cpu")
        return func(*args, **kwargs)


def _compilers(spec: GPUSpec, benchmark: Callable[..., float]) -> list[tuple[Any, str, Any]]:
    """Replace what the compilers bound when they were imported, and what they would do on the GPU."""
    from torch._dynamo import device_interface
    from torch._inductor import constant_folding
    from torch._inductor.fx_passes import joint_graph
    from torch._inductor.runtime import benchmarking, triton_helpers

    lazy_init = joint_graph.lazy_init

    def patterns_on_host(device: Any = None) -> Any:
        """Trace the patterns that Inductor looks for on host tensors: they are about operators, not about devices."""
        return lazy_init(torch.device("cpu"))

    fold = constant_folding.ConstantFolder.run

    def folded_on_host(self: Any) -> Any:
        with _ConstantsOnHost():
            return fold(self)

    def timed(self: Any, fn: Callable[[], Any], *args: Any, **kwargs: Any) -> float:
        return benchmark(fn)

    return [
        *compiler_interface(spec, device_interface),
        (joint_graph, "lazy_init", patterns_on_host),
        (constant_folding.ConstantFolder, "run", folded_on_host),
        (triton_helpers, "set_driver_to_gpu", lambda: None),
        (benchmarking.Benchmarker, "benchmark", timed),
        (benchmarking.InductorBenchmarker, "benchmark_gpu", timed),
    ]
