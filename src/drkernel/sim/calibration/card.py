"""Times of the probes on a machine's GPU, and the built-in card that a calibration starts from."""

from __future__ import annotations

import time

import torch
from pydantic import Field

from drkernel.config import Config
from drkernel.sim.calibration.probes import PROBES, seconds_of
from drkernel.sim.spec import GPUSpec, get_spec, known_gpus, spec_called


class CalibrationTimes(Config):
    """Times of one machine."""

    gpu: str = Field(description="what torch.cuda.get_device_name returned")
    where: str = Field(description="GPU, versions and date in words")
    seconds: dict[str, float] = Field(description="name of the probe -> seconds of one call")


def measure() -> CalibrationTimes:
    """Time every probe on the current GPU. Raises :class:`RuntimeError` when there is none."""
    if not torch.cuda.is_available():
        raise RuntimeError(
            "there is no GPU here (torch.cuda.is_available() is False); --recorded fits to earlier times"
        )
    l2_bytes = int(torch.cuda.get_device_properties(0).L2_cache_size)
    gpu = torch.cuda.get_device_name(0)
    seconds = {}
    for probe in PROBES:
        seconds[probe.name] = seconds_of(probe, l2_bytes)
        torch.cuda.empty_cache()
    where = f"{gpu}, PyTorch {torch.__version__}, {time.strftime('%Y-%m-%d')}"
    return CalibrationTimes(gpu=gpu, where=where, seconds=seconds)


def base_card(gpu: str, name: str | None) -> GPUSpec:
    """The built-in card for a GPU: the named one, or the one whose full name it is.

    Raises:
        ValueError: there is none, or no card of that name.
    """
    if name is not None:
        return get_spec(name)
    found = spec_called(gpu)
    if found is None:
        raise ValueError(f"no built-in card is called {gpu!r}: name one with --base ({', '.join(known_gpus())})")
    return found
