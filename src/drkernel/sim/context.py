"""``with device("h200") as dev:`` makes host code written for a GPU run on a simulated one."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial

from drkernel.sim.gpu.datafree.records import DataFree
from drkernel.sim.gpu.engine import DeviceEngine
from drkernel.sim.gpu.lazy import WORTH, Execution
from drkernel.sim.gpu.pricing import Depth
from drkernel.sim.host.attach import BelowModes, host_side
from drkernel.sim.host.cuda_graphs import graphs_on
from drkernel.sim.host.tensor import DeviceLink
from drkernel.sim.inductor import Compiling
from drkernel.sim.spec import GPUSpec, get_spec
from drkernel.sim.target.shared_memory import text_for_target
from drkernel.verdict import Profile


class SimDevice:
    """A simulated GPU, as seen by a person who debugs a kernel."""

    def __init__(self, spec: GPUSpec, engine: DeviceEngine, link: DeviceLink):
        self.spec = spec
        self.engine = engine
        self.link = link

    @property
    def launches(self) -> list:
        """Kernel launches since the last reset."""
        return self.engine.counters.launches

    @property
    def operators(self) -> dict[str, int]:
        """ATen operators with device work since the last reset."""
        return dict(self.engine.counters.operators)

    @property
    def executed(self) -> dict[str, int]:
        """Kernels and operators, by name, that were carried out here since the last reset.

        A tuner's trials and a benchmark's calls are counted and priced, but carried out only where something looks.
        """
        return dict(self.engine.counters.executed)

    @property
    def copies(self) -> dict[str, int]:
        """Copies between host and device since the last reset."""
        return dict(self.engine.counters.copies)

    @property
    def findings(self) -> list:
        """The sanitizer's findings since the last reset."""
        return self.engine.counters.findings

    @property
    def prints(self) -> list[str]:
        """Lines that kernels printed since the last reset."""
        return self.engine.counters.prints

    def profile(self) -> Profile:
        """Modelled time since the last reset."""
        return self.engine.profile()

    def reset_counters(self) -> None:
        """Reset all counters."""
        self.engine.reset_counters()


def device(
    name: str = "h200", *, checks: str = "auto", memory_bytes: int | None = None, depth: Depth = "ttir",
    conv_tf32: bool = False, data_free: DataFree | None = None, budget_bytes: int | None = None,
    execution: Execution = "auto",
) -> AbstractContextManager[SimDevice]:  # fmt: skip
    """``with device("h200") as dev:`` runs host code on a simulated GPU.

    Args:
        name: ``h100``, ``h200``, ``a100``, ``l40s``, ``rtx4090``, ... (``spec.known_gpus()``)
        checks: "auto" (sanitize small launches), "full" or "off". Bounds and alignment are always checked.
        memory_bytes: device memory; by default the GPU's.
        conv_tf32: compute and price fp32 convolutions in TF32, as PyTorch does by default on a GPU.
        depth: "ttir" runs Triton's front end alone, "full" also compiles every kernel for the GPU.
        data_free: use a device without data, which counts and models at sizes that could not be executed.
        budget_bytes: memory of this machine that the device may use; by default a quarter of it.
        execution: when what is only timed (a tuner's trials, a benchmark's calls, many random numbers, a script's long
            launches) is carried out: "auto", when something looks, if it is large enough for that to pay; "late", of
            any size; "at once", with everything else, as an error is sought.

    Raises:
        ValueError: an unknown GPU, or a value that is not one of those above.
        RuntimeError: a device is already active in this process.
    """
    if execution not in WORTH:
        raise ValueError(f"execution={execution!r} is not one of {', '.join(WORTH)}")
    spec = get_spec(name)
    engine = DeviceEngine(
        spec, checks=checks, memory_bytes=memory_bytes, depth=depth, data_free=data_free, budget_bytes=budget_bytes
    )
    engine.accounts.conv_tf32 = conv_tf32
    engine.work.worth = WORTH[execution]
    return _in_process(engine)


@contextmanager
def _in_process(engine: DeviceEngine) -> Iterator[SimDevice]:
    channel = BelowModes(engine)
    with host_side(engine.spec, channel, Compiling(engine.spec).on, threads=True) as link, graphs_on(channel):
        link.trials = engine.work.running_for
        link.text_of_stage = partial(text_for_target, engine.spec)
        yield SimDevice(engine.spec, engine, link)
