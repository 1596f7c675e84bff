"""The door to the simulated GPU: launch a kernel, see its values and what the device says of it.

``values, record = launch(kernel, grid, *args)`` is for one launch on tensors of the host; ``Record(dev)`` is the same
record where a test drives a device itself. A record has what a user sees: launches with their modelled times, findings,
what was carried out on this machine and what was only counted. It looks anew whenever it is asked, so that a test may
ask before and after something reads a tensor. What it takes from the device's inside it takes here alone.

The executor without a device, on CPU tensors, is ``harness.executing``.
"""

from collections.abc import Sequence
from typing import Any

import pytest
import torch

from drkernel import sim
from drkernel.sim.gpu.accounts import LaunchRecord
from drkernel.sim.gpu.engine import DeviceEngine
from drkernel.sim.script import SimDevice
from drkernel.sim.wire.commands import LaunchCommand
from ttir_executor.compiled import SimFinding


class Record:
    """What a device has to say, now."""

    def __init__(self, dev: SimDevice):
        self.dev = dev

    @property
    def launches(self) -> list[LaunchRecord]:
        """All launches, carried out or only counted."""
        return self.dev.launches

    @property
    def seconds(self) -> list[float]:
        """The modelled time of each launch."""
        return [launch.seconds for launch in self.dev.launches]

    @property
    def findings(self) -> list[SimFinding]:
        """Of the sanitizer."""
        return self.dev.findings

    @property
    def kinds(self) -> list[str]:
        """The findings' kinds."""
        return [finding.kind for finding in self.dev.findings]

    def ran(self, *names: str) -> int:
        """How often kernels or operators of these names were carried out on this machine."""
        return sum(self.dev.executed.get(name, 0) for name in names)

    @property
    def unexecuted(self) -> int:
        """Long launches that nothing has looked at, as a script's report counts them."""
        return self.dev.engine.work.unexecuted.total()

    @property
    def kept_bytes(self) -> int:
        """Memory of this machine for tensors that the host has dropped, and that something still to come reads."""
        return self.dev.engine.heap.dropped_bytes


def fresh(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Stands for device memory that nothing wrote, in the arguments of ``launch``."""
    return torch.empty(*shape, dtype=dtype, device="meta")


def launch(
    kernel: Any,
    grid: Sequence[int],
    *args: Any,
    gpu: str = "h100",
    device: dict[str, Any] | None = None,
    **options: Any,
) -> tuple[list[torch.Tensor], Record]:
    """Launch once: the tensors among the arguments as they are afterwards, and the record of the launch.

    ``device``: further settings of the device; ``options``: constexprs, ``num_warps`` and the like.
    """
    with sim.device(gpu, **(device or {})) as dev:
        given = [_put(value) if isinstance(value, torch.Tensor) else value for value in args]
        dev.reset_counters()
        kernel[tuple(grid)](*given, **options)
        record = Record(dev)
        return [value.cpu() for value in given if isinstance(value, torch.Tensor)], record


def _put(tensor: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(tensor, device="cuda") if tensor.is_meta else tensor.cuda()


class Commands:
    """The launches that reach a device, as the host gives them; also those that it refuses."""

    def __init__(self, patch: pytest.MonkeyPatch):
        self.given: list[LaunchCommand] = []
        launch = DeviceEngine.launch

        def noted(engine: DeviceEngine, command: LaunchCommand) -> None:
            self.given.append(command)
            launch(engine, command)

        patch.setattr(DeviceEngine, "launch", noted)
