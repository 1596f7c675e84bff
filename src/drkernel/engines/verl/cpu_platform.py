"""verl without a GPU: a platform of its own, entered by verl's registry before anything of verl asks for one.

With :mod:`drkernel.engines.verl.cpu_sampler` it is for tests and for a first look at a recipe (``policy.device: cpu``):
the trainer, the queue, the agent loop and the update are verl's own.
"""

from __future__ import annotations

import os
import types
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from verl.plugin.platform.platform_base import PlatformBase
from verl.plugin.platform.platform_manager import PlatformRegistry


def _nothing(*args: Any, **kwargs: Any) -> None:
    return None


# what verl reads of torch.cuda
_DEVICE = types.SimpleNamespace(
    is_available=lambda: True,
    device_count=lambda: 1,
    current_device=lambda: torch.device("cpu"),
    manual_seed=torch.manual_seed,
    manual_seed_all=torch.manual_seed,
    get_rng_state=torch.get_rng_state,
    set_rng_state=torch.set_rng_state,
    get_device_name=lambda *args: "cpu",
    mem_get_info=lambda *args: (0, 0),
    **{
        name: lambda *args: 0
        for name in ("max_memory_allocated", "max_memory_reserved", "memory_allocated", "memory_reserved")
    },
    **{
        name: _nothing
        for name in ("set_device", "synchronize", "empty_cache", "reset_peak_memory_stats", "ipc_collect")
    },
)


@PlatformRegistry.register(platform="cpu")
class PlatformCPU(PlatformBase):
    """``VERL_PLATFORM=cpu``."""

    device_name = "cpu"
    vendor_name = "cpu"
    device_module = _DEVICE
    set_device = synchronize = set_allocator_settings = profiler_start = profiler_stop = empty_cache = _nothing

    def is_available(self) -> bool:
        return True

    def current_device(self) -> Any:
        return torch.device("cpu")  # verl moves tensors there; a number would mean a CUDA device

    def device_count(self) -> int:
        return 1

    def manual_seed(self, seed: int) -> None:
        torch.manual_seed(seed)

    manual_seed_all = manual_seed

    def get_device_capability(self, device_index: int = 0) -> tuple[None, None]:
        return None, None

    def communication_backend_name(self) -> str:
        """``gloo``. verl asks for it where a worker joins its group, and would then name the CPU twice, once as itself
        and once as the device, which torch refuses; so the group is joined here, and verl finds it joined."""
        if "RANK" in os.environ and "MASTER_ADDR" in os.environ and not torch.distributed.is_initialized():
            torch.distributed.init_process_group(
                backend="gloo",
                rank=int(os.environ["RANK"]),
                world_size=int(os.environ["WORLD_SIZE"]),
                init_method=os.environ.get("DIST_INIT_METHOD"),
            )
        return "gloo"

    def visible_devices_envvar(self) -> str:
        return "CUDA_VISIBLE_DEVICES"

    @contextmanager
    def nvtx_range(self, msg: str) -> Iterator[None]:
        yield

    def ray_resource_name(self) -> str:
        return "GPU"  # Ray is told of pretended ones, because verl places its workers by them

    def ray_noset_envvars(self) -> list[str]:
        return ["RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES"]

    def is_ipc_supported(self) -> bool:
        return False

    def cudart(self) -> None:
        return None
