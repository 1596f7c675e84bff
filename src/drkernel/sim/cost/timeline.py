"""Host and device on one clock: an asynchronous queue of modelled kernels, and the profile it leaves."""

from dataclasses import dataclass, field

from drkernel.sim.cost.records import CostEstimate
from drkernel.sim.spec import GPUSpec
from drkernel.verdict import Bound, Owner, Profile, ProfileRow

FLUSH_BYTES = 256 * 2**20
"""A timed call follows a fill of this size that empties L2, as benchmarks do; meanwhile the host runs ahead."""


MAX_SPANS = 20_000
"""pieces of device work whose start is kept"""


@dataclass(frozen=True)
class Span:
    """One piece of device work on the clock."""

    name: str
    owner: Owner
    start: float
    """seconds on the clock at which the device begins it"""
    seconds: float
    bound: Bound
    bytes: float
    flops: float


@dataclass
class _Row:
    calls: int = 0
    seconds: float = 0.0
    host: float = 0.0
    ideal: float = 0.0
    nbytes: float = 0.0
    flops: float = 0.0
    bounds: dict[Bound, float] = field(default_factory=dict)
    unpriced: str = ""


class Timeline:
    """Accumulates device work in order.

    The host enqueues and runs ahead; the device starts each kernel when it is free and the launch has arrived. A
    synchronising copy makes the host wait for the device. ``host_lead`` seconds of earlier device work (the flush) hide
    the first launches; by default the time of filling 256 MiB.
    """

    def __init__(self, spec: GPUSpec, *, host_lead: float | None = None) -> None:
        self.spec = spec
        self.host_lead = FLUSH_BYTES / spec.dram_bandwidth if host_lead is None else host_lead
        self.host = -self.host_lead
        self.device_free = 0.0
        self.device_seconds = 0.0
        self._rows: dict[tuple[str, Owner], _Row] = {}
        self.spans: list[Span] = []
        """The first pieces of device work, in order."""

    @property
    def elapsed_seconds(self) -> float:
        """Seconds that two events around everything would measure: to the end of the last command, on host or
        device."""
        around = self.spec.event_overhead if self.device_seconds else 0.0
        return max(self.host, self.device_free) + around

    def add_host(self, seconds: float | None = None) -> None:
        """Add host time without device work: an operator that only makes a view, unless ``seconds`` is given."""
        self.host += self.spec.host_op_overhead if seconds is None else seconds

    def sleep(self, cycles: int) -> None:
        """Keep the device busy, as ``torch.cuda._sleep`` does so that launches queue up behind."""
        self.add("library", "sleep", CostEstimate(cycles / self.spec.boost_clock_hz, bound="latency"))

    def add(self, owner: Owner, name: str, cost: CostEstimate) -> None:
        """Enqueue one operator or launch."""
        overhead = self.spec.kernel_launch_overhead if owner == "custom" else self.spec.launch_overhead
        launching = overhead if cost.host_seconds is None else cost.host_seconds
        self.host += launching
        if cost.kernels == 0 and cost.seconds == 0.0:
            return
        start = max(self.device_free, self.host)
        if len(self.spans) < MAX_SPANS:
            self.spans.append(Span(name, owner, start, cost.seconds, cost.bound, cost.dram_bytes, cost.total_flops))
        self.device_free = start + cost.seconds
        self.device_seconds += cost.seconds
        row = self._rows.setdefault((name, owner), _Row())
        row.calls += 1
        row.seconds += cost.seconds
        row.host += launching
        row.ideal += cost.roofline * cost.seconds
        row.nbytes += cost.dram_bytes
        row.flops += cost.total_flops
        row.unpriced = row.unpriced or cost.unpriced
        row.bounds[cost.bound] = row.bounds.get(cost.bound, 0.0) + cost.seconds

    def add_copy(self, name: str, nbytes: float) -> None:
        """Add a copy between host and device, for which the host waits."""
        seconds = self.spec.copy_latency + nbytes / self.spec.pcie_bandwidth
        ideal = nbytes / self.spec.pcie_bandwidth / seconds
        bound: Bound = "memory" if ideal > 0.5 else "latency"
        asked = self.spec.launch_overhead
        cost = CostEstimate(seconds, dram_bytes=nbytes, bound=bound, roofline=ideal, host_seconds=asked)
        self.add("copy", name, cost)
        self.synchronize()

    def synchronize(self) -> None:
        """Make the host wait for the device."""
        self.host = max(self.host, self.device_free)

    def profile(self, device: str) -> Profile:
        """One row per kernel or operator, the costliest first."""
        total = self.device_seconds
        rows = tuple(
            ProfileRow(
                name=name, owner=owner, calls=row.calls, seconds=row.seconds, host_seconds=row.host,
                share=row.seconds / total if total else 0.0, bound=max(row.bounds, key=lambda bound: row.bounds[bound]),
                roofline=row.ideal / row.seconds if row.seconds else None, bytes=row.nbytes, flops=row.flops,
                unpriced=row.unpriced or None,
            )
            for (name, owner), row in sorted(self._rows.items(), key=lambda item: -item[1].seconds)
        )  # fmt: skip
        return Profile(
            kind="modelled", device=device, rows=rows, total_seconds=total, elapsed_seconds=self.elapsed_seconds,
            host=f"{self.spec.host}, {self.spec.launch_overhead * 1e6:g} us an operator",
        )  # fmt: skip
