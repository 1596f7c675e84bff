"""GPU specifications as data: what the cost model and the compiler need to know of a device.

The figures and their sources stand in ``specs/gpus.yaml``. Nothing there is fitted to a task.
"""

from __future__ import annotations

from functools import lru_cache
from importlib import resources
from typing import Literal

import yaml
from pydantic import Field

from drkernel.config import Config


class GPUSpec(Config):
    """One GPU. Units: Hz, bytes, bytes/s, FLOP/s, seconds."""

    name: str
    vendor: Literal["nvidia", "amd"]
    full_name: str = Field(description="what torch.cuda.get_device_name returns there")
    arch: int | str = Field(description="Triton target: 90 for sm_90, 'gfx942' for AMD")
    sm_count: int = Field(gt=0, description="streaming multiprocessors (compute units on AMD)")
    clock_hz: float = Field(gt=0, description="sustained clock")
    hbm_bytes: int = Field(gt=0)
    hbm_bandwidth: float = Field(gt=0)
    hbm_efficiency: float = Field(gt=0, le=1, description="share of the peak bandwidth that a large copy reaches")
    l2_bytes: int = Field(gt=0)
    l2_bandwidth: float = Field(gt=0)
    smem_per_sm: int = Field(gt=0)
    max_smem_per_block: int = Field(gt=0)
    regs_per_sm: int = Field(gt=0)
    max_threads_per_sm: int = Field(gt=0)
    max_blocks_per_sm: int = Field(gt=0)
    peak: dict[str, float] = Field(description="dense peak by unit; see gpus.yaml for the units' names")
    pcie_bandwidth: float = Field(gt=0)
    launch_overhead: float = Field(gt=0, description="host seconds of an ATen operator that launches a kernel")
    kernel_launch_overhead: float = Field(gt=0, description="host seconds of a Triton launch")
    host_op_overhead: float = Field(gt=0, description="host seconds of an operator without device work")
    copy_latency: float = Field(gt=0, description="seconds of an empty copy between host and device")
    kernel_min: float = Field(gt=0, description="device seconds of an empty kernel")
    atomic_same_address: float = Field(gt=0, description="seconds per serialised atomic on one address")

    @property
    def warp_size(self) -> int:
        """Threads that run in lockstep."""
        return 32 if self.vendor == "nvidia" else 64

    @property
    def backend(self) -> str:
        """Triton's backend name."""
        return "cuda" if self.vendor == "nvidia" else "hip"

    @property
    def capability(self) -> tuple[int, int]:
        """What ``torch.cuda.get_device_capability`` returns there."""
        return (self.arch // 10, self.arch % 10) if isinstance(self.arch, int) else (9, 4)


@lru_cache
def _all_specs() -> dict[str, GPUSpec]:
    text = resources.files("drkernel.sim").joinpath("specs/gpus.yaml").read_text(encoding="utf-8")
    raw = yaml.safe_load(text)
    return {name: GPUSpec(name=name, **_with_base(fields, raw)) for name, fields in raw.items()}


def _with_base(fields: dict, raw: dict) -> dict:
    """The fields over those of the entry that ``base`` names."""
    base = raw[fields["base"]] if "base" in fields else {}
    return {**base, **{key: value for key, value in fields.items() if key != "base"}}


def known_gpus() -> list[str]:
    """Names that :func:`get_spec` accepts."""
    return sorted(_all_specs())


def get_spec(name: str) -> GPUSpec:
    """The spec of a GPU by its short name. Raises ``ValueError`` that names the known ones."""
    try:
        return _all_specs()[name.lower()]
    except KeyError:
        raise ValueError(f"no GPU named {name!r}; there are: {', '.join(known_gpus())}") from None
