"""GPU specifications as data: what the cost model and the compiler need to know of a device.

One file per GPU under ``specs/``; every value stands beside the citation it comes from. Nothing is fitted to a task.
"""

from __future__ import annotations

from functools import lru_cache
from importlib import resources
from typing import Any, Literal

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
    clock_hz: float = Field(gt=0, description="clock that vector code sustains")
    boost_clock_hz: float = Field(gt=0, description="clock of the data sheet's peaks")
    hbm_bytes: int = Field(gt=0)
    hbm_bandwidth: float = Field(gt=0)
    hbm_efficiency: float = Field(gt=0, le=1, description="share of the peak bandwidth that a large copy reaches")
    l2_bytes: int = Field(gt=0, description="the last level that all SMs share (Infinity Cache on MI300X)")
    l2_bandwidth: float = Field(gt=0, description="achievable, all SMs together")
    l2_latency: float = Field(gt=0, description="load-to-use latency of a hit")
    dram_latency: float = Field(gt=0, description="load-to-use latency of a miss")
    sm_bytes_per_clock: int = Field(gt=0, description="bytes one SM can take from L2 in a clock")
    smem_per_sm: int = Field(gt=0)
    max_smem_per_block: int = Field(gt=0)
    regs_per_sm: int = Field(gt=0, description="32-bit registers")
    max_threads_per_sm: int = Field(gt=0)
    max_blocks_per_sm: int = Field(gt=0)
    peak: dict[str, float] = Field(description="dense peak FLOP/s by unit (results/s for 'int' and 'sfu')")
    pcie_bandwidth: float = Field(gt=0, description="achievable, one direction")
    launch_overhead: float = Field(gt=0, description="host seconds of an eager operator that launches a kernel")
    kernel_launch_overhead: float = Field(gt=0, description="host seconds of a Triton launch")
    host_op_overhead: float = Field(gt=0, description="host seconds of an operator without device work")
    copy_latency: float = Field(gt=0, description="seconds of an empty copy between host and device")
    kernel_min: float = Field(gt=0, description="device seconds of an empty kernel in a busy stream")
    event_overhead: float = Field(
        gt=0, description="seconds between two events around a kernel, beyond the kernel's own in a busy stream"
    )
    atomic_same_address: float = Field(gt=0, description="seconds per serialised atomic on one address")
    sources: dict[str, str] = Field(description="field (or 'peak.<unit>') -> citation")

    def __hash__(self) -> int:
        return hash(self.name)

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

    @property
    def dram_bandwidth(self) -> float:
        """Bytes/s of device memory that a large copy reaches."""
        return self.hbm_bandwidth * self.hbm_efficiency


def _read(name: str) -> dict[str, Any]:
    """The raw entry of one GPU with its base merged in: {citations, fields, peak}."""
    text = resources.files("drkernel.sim").joinpath(f"specs/{name}.yaml").read_text(encoding="utf-8")
    raw = yaml.safe_load(text)
    base = _read(raw["base"]) if "base" in raw else {"citations": {}, "fields": {}, "peak": {}}
    return {part: {**base[part], **raw.get(part, {})} for part in ("citations", "fields", "peak")}


@lru_cache
def _load(name: str) -> GPUSpec:
    raw = _read(name)
    cited = {**raw["fields"], **{f"peak.{unit}": entry for unit, entry in raw["peak"].items()}}
    return GPUSpec(
        name=name,
        **{field: entry["value"] for field, entry in raw["fields"].items()},
        peak={unit: entry["value"] for unit, entry in raw["peak"].items()},
        sources={field: raw["citations"][entry["source"]] for field, entry in cited.items()},
    )


@lru_cache
def known_gpus() -> list[str]:
    """Names that :func:`get_spec` accepts."""
    folder = resources.files("drkernel.sim").joinpath("specs")
    return sorted(entry.name.removesuffix(".yaml") for entry in folder.iterdir() if entry.name.endswith(".yaml"))


def get_spec(name: str) -> GPUSpec:
    """The spec of a GPU by its short name. Raises ``ValueError`` that names the known ones."""
    key = name.lower()
    if key not in known_gpus():
        raise ValueError(f"no GPU named {name!r}; there are: {', '.join(known_gpus())}")
    return _load(key)
