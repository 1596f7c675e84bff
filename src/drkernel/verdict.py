"""The Verdict record: everything the judge found out about one candidate.

The gym returns these records, the store keeps them, rewards read them and reports show them. They import nothing heavy,
are frozen, refuse unknown fields, and round-trip through JSON.
"""

import re
from typing import Any, Literal

from pydantic import Field
from pydantic_core import PydanticSerializationError

from drkernel.config import Config

Status = Literal[
    "correct", "incorrect", "compile_error", "runtime_error", "timeout", "out_of_memory", "hack", "unsupported",
    "infra_error", "invalid_request",
]  # fmt: skip
"""``infra_error`` is never the candidate's fault: it is retried, then masked out of training, never scored as 0.
``invalid_request`` is the request's (a task that does not load, a device that is not there): tried once, charged to
nobody, masked too. ``unsupported`` is a candidate in a language that the device cannot run: neither right nor wrong."""

TimingKind = Literal["measured", "modelled"]
ObservedBy = Literal["device", "runner"]
"""Who saw something: the judge's own device, or the untrusted process of the candidate, which could lie."""
Owner = Literal["custom", "library", "copy"]
Bound = Literal["memory", "compute", "latency"]


CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""what a terminal obeys instead of showing it, tabs and line ends apart: escape sequences, orders to write from
right to left, and halves of characters that no encoding has"""


def printable(text: str, lines: bool = True) -> str:
    """``text`` with control characters written out (an escape as ``\\x1b``), and line ends too unless ``lines``."""
    shown = CONTROLS.sub(lambda match: match[0].encode("unicode_escape").decode(), text)
    return shown if lines else shown.replace("\n", "\\n")


class Timing(Config):
    """The device time of one call of a module. A modelled time is never called measured."""

    kind: TimingKind = Field(description="'measured' on a GPU, 'modelled' by the simulator")
    device: str = Field(description="what was timed or modelled, e.g. 'sim:h200' or 'cuda:0 NVIDIA H200'")
    seconds: float = Field(ge=0, description="median seconds of one call")
    samples: tuple[float, ...] = Field(
        (), description="seconds by events of every timed call on inputs of its own, in order; empty when modelled"
    )
    clocks_mhz: tuple[float, ...] = Field(
        (), description="the multiprocessors' clock in each timed block, by NVML; empty when modelled, or not readable"
    )
    slowed_by: tuple[str, ...] = Field((), description="what kept that clock down: 'power', 'temperature', ...")


ALIKE_WITHIN = 1.10
"""modelled times of one task's kernels that differ by less cannot be told apart: of block-scaled products with measured
winners the modelled one is in the median ahead of the real one by 1.08 (64 on A100, H100, H200 and B200)"""
HANGS_ABOVE = 1.1
"""speedup of calls over that of device work, either way, from which a speedup hangs on the host"""


class Speedup(Config):
    """Reference time over candidate time."""

    value: float = Field(ge=0, description="ratio of medians, > 1 is faster than the reference")
    low: float = Field(ge=0, description="lower end of the interval")
    high: float = Field(ge=0, description="upper end of the interval")
    confidence: float = Field(
        0.95, gt=0, lt=1, description="coverage of the interval: bootstrap of measured times, or the model's own error"
    )
    kind: TimingKind = Field(description="kind of both timings; kinds are never mixed")
    device_value: float | None = Field(
        None, ge=0, description="modelled times: the ratio of device-busy seconds alone, which no host changes"
    )

    @property
    def host_note(self) -> str:
        """What a speedup says that another host would change: of calls and of device work it differs; else nothing."""
        both = self.value, self.device_value or 0.0
        hangs = min(both) > 0 and max(both) > HANGS_ABOVE * min(both)
        return f"hangs on the host: {both[1]:.2f}x in device time alone" if hangs else ""


OWN_FILE = "candidate.py"
"""file of a candidate's kernels, in whatever folder it ran"""


class SourceLine(Config):
    """A source line's part in one launch of a kernel, over all programs. Times are modelled."""

    file: str
    line: int
    callers: tuple[str, ...] = Field((), description="'file:line' of the calls that led there, the innermost first")
    text: str = Field("", description="the line, where it could be read")
    share: float = Field(ge=0, description="of the launch's time: of the limit that binds, by what the line asks of it")
    bytes_asked: float = Field(0.0, ge=0, description="of loads and stores, in whole sectors of 32 bytes")
    bytes_used: float = Field(0.0, ge=0, description="of the elements that are loaded and stored")
    bytes_unique: float = Field(
        0.0, ge=0, description="distinct bytes of the storages it accesses; other lines may share them"
    )
    sectors_per_request: float | None = Field(None, description="32-byte sectors asked for by 32 lanes")
    sectors_needed: float | None = Field(None, description="those that their elements would fill side by side")
    operations: float = Field(0.0, ge=0, description="floating-point operations, special functions among them")
    atomics: float = Field(0.0, ge=0, description="atomic updates")
    coalesced_seconds: float | None = Field(
        None, description="time of the launch if the line asked for no more sectors than it needs, where it does"
    )


class LaunchDetail(Config):
    """Where the modelled time of a kernel's slowest launch goes."""

    kernel: str
    programs: int
    num_warps: int
    num_stages: int
    seconds: float = Field(ge=0)
    limits: dict[str, float] = Field(
        description="seconds that each limit alone would take: dram, l2, sm_memory, compute, atomics, chains "
        "(programs' own latency), dispatch. The longest counts, and 'fixed' comes on top"
    )
    resident: int = Field(description="programs on one SM at a time")
    occupancy: float = Field(ge=0, description="warps on one SM over the most that it holds")
    limited_by: str = Field(description="what limits the resident programs")
    registers: int = Field(description="of a thread; estimated where the kernel was not compiled for the GPU")
    shared_bytes: int = Field(description="of a program; 0 where it fits for sure")
    dram_bytes: float = Field(ge=0)
    operations: float = Field(ge=0, description="floating-point operations")
    unit: str = Field(description="unit whose operations take longest, such as tensor_bf16")
    lines: tuple[SourceLine, ...] = Field((), description="the costliest first")


class ProfileRow(Config):
    """Device time of one kernel or operator in one call of a module."""

    name: str = Field(description="kernel function name or ATen operator, e.g. 'softmax_kernel', 'aten.mm'")
    owner: Owner = Field(
        description="'custom': a kernel of the candidate's own; 'library': PyTorch; 'copy': host<->device"
    )
    calls: int = Field(ge=1, description="launches in one call of the module")
    seconds: float = Field(ge=0, description="device seconds of all its calls")
    host_seconds: float | None = Field(None, ge=0, description="host seconds that launching them took, where known")
    share: float = Field(ge=0, le=1.0001, description="fraction of the profile's total")
    bound: Bound | None = Field(None, description="what limits it, where known")
    roofline: float | None = Field(None, ge=0, description="fraction of the roofline reached, where known")
    bytes: float | None = Field(None, ge=0, description="bytes moved to and from device memory")
    flops: float | None = Field(None, ge=0, description="floating-point operations")
    unpriced: str | None = Field(
        None, description="why its time has no model, so that `seconds` is only a floor; None where it has one"
    )
    detail: LaunchDetail | None = Field(None, description="by source line, where that was asked for")


class Profile(Config):
    """How the device time of one call is spent."""

    kind: TimingKind
    device: str
    rows: tuple[ProfileRow, ...] = ()
    total_seconds: float = Field(ge=0, description="sum of the rows: device-busy seconds")
    elapsed_seconds: float = Field(ge=0, description="first launch to last completion, gaps included")
    host: str | None = Field(None, description="the host that was modelled, with its seconds of one small operator")

    @property
    def unpriced(self) -> tuple[str, ...]:
        """Names of the rows whose time the cost model does not know."""
        return tuple(row.name for row in self.rows if row.unpriced)

    @property
    def coverage(self) -> float:
        """T_custom / T_total (PR): share of device time in kernels that the candidate itself defined."""
        custom = sum(row.seconds for row in self.rows if row.owner == "custom")
        return custom / self.total_seconds if self.total_seconds > 0 else 0.0

    @property
    def launch_coverage(self) -> float:
        """Share of kernel launches that are the candidate's own (0..1); host-device copies do not count as kernels."""
        custom = sum(row.calls for row in self.rows if row.owner == "custom")
        library = sum(row.calls for row in self.rows if row.owner == "library")
        return custom / (custom + library) if custom else 0.0


class Finding(Config):
    """One named piece of evidence. ``hack`` condemns the candidate; ``bug`` and ``note`` only inform."""

    kind: str = Field(description="name, e.g. 'no_custom_kernel', 'decoy_kernel', 'stale_output', 'out_of_bounds'")
    severity: Literal["hack", "bug", "note"] = Field(description="'hack' makes the verdict a hack")
    message: str = Field(description="one sentence a person understands")
    evidence: dict[str, str | int | float | bool | list[str]] = Field(
        default_factory=dict, description="the figures and names that show it"
    )
    seen_on: str | None = Field(
        None, description="the co-judge that showed it ('sim:h200'); None: the verdict's device"
    )


class Mismatch(Config):
    """The worst difference between a candidate's output and the oracle."""

    output: int = Field(ge=0, description="index of the output in the returned tuple")
    index: tuple[int, ...] = Field(description="position of the worst element")
    expected: float
    actual: float
    tolerance: float = Field(description="largest |difference| that would have passed at that element")
    wrong_fraction: float = Field(ge=0, le=1, description="share of elements out of tolerance")


class Correctness(Config):
    """The result of comparing the outputs with the oracle."""

    checked_calls: int = Field(ge=0, description="calls whose outputs were compared, each on fresh inputs")
    passed_calls: int = Field(ge=0)
    max_error: float | None = Field(None, description="worst |difference| over tolerance; <= 1 passes")
    mismatch: Mismatch | None = None
    message: str | None = Field(None, description="shape, dtype or count disagreement, in words")

    @property
    def only_inaccurate(self) -> bool:
        """Whether every element is within tolerance, and the output as a whole is not accurate enough."""
        return self.mismatch is None and "rms error" in (self.message or "")


class CandidateError(Config):
    """The exception or signal that ended a candidate."""

    type: str = Field(description="exception class or signal name")
    message: str
    traceback: str | None = Field(None, description="the candidate's own frames only")
    line: int | None = Field(None, ge=1, description="line of the candidate's source, where known")


class SandboxReport(Config):
    """The isolation layers that were active during the run."""

    layers: tuple[str, ...] = Field((), description="e.g. 'seccomp', 'landlock', 'rlimits', 'network namespace'")
    missing: dict[str, str] = Field(default_factory=dict, description="layer -> why it was not available")


class NotChecked(Config):
    """A check that could not be made where the candidate ran."""

    check: str = Field(description="the finding that would have come of it, e.g. 'copy_kernel'")
    why: str = Field(description="what cannot be observed there, in words")


class Sizes(Config):
    """Sizes that a candidate was run at."""

    profile: str | None = Field(None, description="name of the task's size profile, where it is one of them")
    changed: dict[str, tuple[int, int]] = Field(
        default_factory=dict,
        description="constants of the reference that differ from the task's own -> (own, used); empty: the own sizes",
    )
    inputs: tuple[str, ...] = Field((), description="arguments of forward in words, e.g. 'x float32[4096, 393216]'")

    @property
    def words(self) -> str:
        """The arguments of forward on one line."""
        return ", ".join(self.inputs)

    @property
    def label(self) -> str:
        """The profile, or the sizes that differ from the task's own, in words; empty at the own sizes."""
        if self.profile is not None:
            return f"profile {self.profile!r}"
        return ", ".join(f"{name} {used} (of {own})" for name, (own, used) in self.changed.items())


class Exactness(Config):
    """The outcome of comparing candidate and reference in finite fields, without a tolerance."""

    outcome: Literal["proved", "differs", "open"] = Field(
        description="'proved': equal expressions in every element of one call; 'differs': another function; 'open'"
    )
    elements: int = Field(0, description="elements of the outputs that were compared")
    equal: int = 0
    differ: int = 0
    inputs: str = Field("", description="shapes of the call's inputs")
    ignored: tuple[str, ...] = Field(
        (), description="inputs and weights that the answer, but not the reference's, ignores"
    )
    why: str | None = Field(None, description="why it is open; what is not equal where it is proved")
    seconds: float = 0.0


class Verdict(Config):
    """The one result record of an evaluation."""

    schema_version: Literal[2] = 2
    status: Status
    task_id: str
    candidate_sha256: str = Field(description="SHA-256 of the candidate's source")
    device: str = Field(description="'sim:h200', 'cuda:0', ...")
    baseline: Literal["eager", "compile"] = "eager"
    correctness: Correctness | None = None
    timing: Timing | None = Field(None, description="the candidate's time")
    reference_timing: Timing | None = Field(None, description="the reference's time, of the same kind")
    speedup: Speedup | None = None
    checked_at: Sizes | None = Field(None, description="sizes at which answers were compared")
    timed_at: Sizes | None = Field(
        None, description="sizes that all times, profiles and coverage of this verdict are of"
    )
    untimed: str | None = Field(
        None, description="why the task's own sizes were not timed though that was asked for, and what was instead"
    )
    profile: Profile | None = Field(None, description="the candidate's profile")
    reference_profile: Profile | None = None
    coverage: float | None = Field(
        None, ge=0, le=1.0001, description="share of device time in own kernels that contribute to the outputs"
    )
    coverage_source: ObservedBy | None = Field(
        None, description="who says which kernels are the candidate's: 'device' is the judge's own, 'runner' could lie"
    )
    co_judge: str | None = Field(
        None, description="simulated GPU that graded the candidate, too, where the device is a real one: 'sim:h200'"
    )
    exactness: Exactness | None = Field(None, description="exact comparison with the reference, where it was made")
    language: str | None = Field(None, description="what the candidate is written in: 'triton', 'cuda', ...")
    findings: tuple[Finding, ...] = ()
    not_checked: tuple[NotChecked, ...] = Field((), description="checks that this device does not allow, with reasons")
    error: CandidateError | None = None
    sandbox: SandboxReport = SandboxReport()
    stdout: str = Field("", description="what the candidate printed, truncated")
    seconds: float = Field(0.0, ge=0, description="wall seconds that the evaluation took")
    phases: dict[str, float] = Field(default_factory=dict, description="wall seconds by phase of the evaluation")
    attempts: int = Field(1, ge=1, description="tries made, infra retries counted")

    @property
    def is_correct(self) -> bool:
        """Whether the answer is right and no finding condemns it."""
        return self.status == "correct"

    @property
    def is_hack(self) -> bool:
        """Whether at least one finding condemns the candidate."""
        return self.status == "hack"

    @property
    def is_of_candidate(self) -> bool:
        """Whether the verdict is about the candidate. If not, the grader or the request failed: mask it in training."""
        return self.status not in ("infra_error", "invalid_request")


def storable(fields: dict[str, Any]) -> Verdict:
    """Build the verdict with text that UTF-8 can encode and no terminal obeys: a candidate's messages, names and prints
    may hold lone surrogates and escape sequences."""
    verdict = Verdict(**fields)
    try:
        if not ESCAPED_CONTROLS.search(verdict.model_dump_json()):
            return verdict
    except PydanticSerializationError:
        pass
    return Verdict.model_validate(_shown(verdict.model_dump()))


ESCAPED_CONTROLS = re.compile(rf"\\u00[01]|\\[bfnr]|{CONTROLS.pattern}")
"""what control characters look like in JSON"""
LINES = ("stdout", "error")
"""fields whose text may have several lines"""


def _shown(value: Any, lines: bool = False) -> Any:
    if isinstance(value, str):
        return printable(value.encode("utf-8", "backslashreplace").decode(), lines)
    if isinstance(value, dict):
        return {_shown(key): _shown(item, lines or key in LINES) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_shown(item, lines) for item in value)
    return value
