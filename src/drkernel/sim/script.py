"""``with device("h200") as dev:`` makes host code written for a GPU run on a simulated one; running a whole script so,
with a record of what the device observed, is the basis of ``drkernel sim``.
"""

import atexit
import functools
import json
import linecache
import os
import runpy
import signal
import sys
import sysconfig
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

import torch
from pydantic import Field

from drkernel.config import Config
from drkernel.digest import package_folder
from drkernel.sim.gpu.accounts import LaunchKey, LaunchRecord, launch_key
from drkernel.sim.gpu.datafree import DataDependence, DataFree
from drkernel.sim.gpu.device_journal import MAX_DETAILED_TEXT, detail_of
from drkernel.sim.gpu.engine import DeviceEngine
from drkernel.sim.gpu.heap import SCRIPT_SHARE, default_budget
from drkernel.sim.gpu.lazy import WORTH, Execution
from drkernel.sim.gpu.pricing import Depth
from drkernel.sim.host.attach import BelowModes, host_side
from drkernel.sim.host.cuda_api import replaced_attributes
from drkernel.sim.host.cuda_graphs import graphs_on
from drkernel.sim.host.tensor import DeviceLink, DeviceTensor
from drkernel.sim.inductor import Compiling
from drkernel.sim.spec import GPUSpec, card_data, get_spec, learn_card
from drkernel.sim.target import text_for_target
from drkernel.verdict import LaunchDetail, Profile
from ttir_executor.compiled import SimFinding
from ttir_executor.launch import stop_running


class SimDevice:
    """A simulated GPU, as seen by a person who debugs a kernel."""

    def __init__(self, spec: GPUSpec, engine: DeviceEngine, link: DeviceLink):
        self.spec = spec
        self.engine = engine
        self.link = link

    @property
    def launches(self) -> list:
        """Kernel launches since the last reset."""
        return self.engine.accounts.launches

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
    compiling = partial(Compiling, engine.spec)
    with host_side(engine.spec, channel, compiling, threads=True) as link, graphs_on(channel):
        link.trials = engine.work.running_for
        link.text_of_stage = partial(text_for_target, engine.spec)
        yield SimDevice(engine.spec, engine, link)


MAX_DETAILS = 20
"""most rows of launches that are broken down by line"""
INTERRUPTED = "interrupted; what is shown is what the device saw until then"


class LaunchRow(Config):
    """Launches of one kernel with the same grid, constexprs, warps and stages."""

    kernel: str
    identity: str = Field(description="module, qualified name and source hash of the jitted function")
    grid: tuple[int, int, int]
    constexprs: dict[str, str]
    num_warps: int
    num_stages: int
    calls: int = Field(ge=1)
    tuning: int = Field(0, ge=0, description="of these, launches right after L2 was emptied: tuning, benchmarks")
    unexecuted: int = Field(
        0, ge=0, description="of these, launches that were counted from a sample of programs and never executed, as "
        "they take long and nothing read what they write: their values are unchecked (never with --checks full)",
    )  # fmt: skip
    seconds: float = Field(ge=0, description="modelled device seconds of all calls")
    bound: str = Field(description="what limits it: memory, compute or latency")
    roofline: float | None = Field(None, description="fraction of the roofline reached")
    unique_bytes: float = Field(0.0, description="distinct bytes read plus distinct bytes written, all calls")
    dram_bytes: float = Field(0.0, description="bytes to and from device memory, all calls")
    flops: float = Field(0.0, description="floating-point operations, all calls")
    registers: int | None = Field(None, description="per thread; known at depth 'full'")
    spills: int | None = Field(None, description="bytes spilled per thread; known at depth 'full'")
    shared_bytes: int | None = Field(None, description="shared memory per program; known at depth 'full'")
    occupancy: int | None = Field(None, description="programs resident on one SM; known at depth 'full'")
    detail: LaunchDetail | None = Field(
        None, description="where the time of the slowest of them goes, by source line; of the costliest rows"
    )
    ttir: str | None = Field(None, exclude=True, description="in Triton's IR, for pages; of the costliest rows")


class ScriptError(Config):
    """The exception that ended the script."""

    type: str
    message: str
    line: int | None = Field(None, description="line of the script that was running")
    traceback: str


class WithoutData(Config):
    """The accuracy of a data-free run's figures. Its outputs hold no values."""

    error: float = Field(ge=0, description="estimated relative error of the modelled device time by sampling programs")
    programs: int = Field(ge=0, description="programs of all launches")
    looked_at: int = Field(ge=0, description="programs whose reads were looked at")
    depends_on_data: tuple[str, ...] = Field(
        description="where the run went by data that is not there; a sentence each"
    )


class TraceSpan(Config):
    """One piece of device work on the modelled clock."""

    name: str
    owner: str = Field(description="custom, library or copy")
    start: float = Field(description="seconds; 0 is the first command, before which the host may run ahead")
    seconds: float = Field(ge=0)
    bound: str
    bytes: float = Field(0.0, description="to and from device memory")
    flops: float = Field(0.0, description="floating-point operations")
    grid: tuple[int, int, int] | None = Field(None, description="of a launch of the script's own")
    settings: dict[str, str] = Field(default_factory=dict, description="its constexprs, warps and stages")


class ScriptReport(Config):
    """Everything that the device observed of one script."""

    schema_version: Literal[1] = 1
    script: str
    device: str = Field(description="e.g. 'sim:h200'")
    gpu: str = Field(description="the GPU's full name")
    launches: tuple[LaunchRow, ...] = Field(description="in order of first launch")
    operators: dict[str, int] = Field(description="ATen operators with device work -> calls")
    copies: dict[str, int] = Field(description="copies between host and device -> times")
    findings: tuple[SimFinding, ...]
    prints: tuple[str, ...] = Field(description="lines of tl.device_print")
    profile: Profile
    peak_bytes: int = Field(ge=0, description="largest device memory in use")
    wall_seconds: float = Field(ge=0, description="what running the script took here")
    error: ScriptError | None = None
    spans: tuple[TraceSpan, ...] = Field((), description="device work in order, where a trace was asked for")
    without_data: WithoutData | None = Field(None, description="set when the device had no data (--no-data)")

    @property
    def kernels(self) -> tuple[LaunchRow, ...]:
        """Of each kernel the costliest row with a detail, the costliest kernel first.

        Configurations that were only tried in tuning do not count.
        """
        used, best = self.used_seconds, dict[str, tuple[float, LaunchRow]]()
        for row, seconds in zip(self.launches, used, strict=True):
            if row.detail is not None and seconds > best.get(row.identity, (0.0, row))[0]:
                best[row.identity] = seconds, row
        return tuple(row for _, row in sorted(best.values(), key=lambda each: -each[0]))

    @property
    def used_seconds(self) -> list[float]:
        """Modelled device seconds of each row without launches for tuning, unless its kernel has no others."""
        used = {row.identity for row in self.launches if row.calls > row.tuning}
        return [row.seconds * (row.calls - row.tuning * (row.identity in used)) / row.calls for row in self.launches]

    @property
    def exit_code(self) -> int:
        """130 if the user stopped it, 143 if it was asked to end, 3 if the sanitizer found an error, 1 if the script
        failed, otherwise 0."""
        if self.error is not None and self.error.type == "KeyboardInterrupt":
            return 130
        if self.error is not None and self.error.type == "Terminated":
            return 143
        if any(finding.severity == "error" for finding in self.findings):
            return 3
        return 1 if self.error is not None else 0


class Terminated(KeyboardInterrupt):
    """The process was asked to end (SIGTERM)."""


@contextmanager
def _interruptible() -> Iterator[None]:
    """In the main thread: SIGINT and SIGTERM stop the launch that is running, then raise ``KeyboardInterrupt`` or
    :class:`Terminated`."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    reader, writer = os.pipe()
    os.set_blocking(writer, False)

    def watch() -> None:
        while signals := os.read(reader, 64):
            if {signal.SIGINT, signal.SIGTERM} & set(signals):
                stop_running()
        os.close(reader)

    def terminate(number: int, frame: Any) -> None:
        raise Terminated

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    before_fd = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    before = signal.signal(signal.SIGTERM, terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
        signal.set_wakeup_fd(before_fd)
        os.close(writer)
        watcher.join()


def run_script(
    path: Path,
    args: Sequence[str] = (),
    *,
    gpu: str = "h200",
    checks: str = "auto",
    depth: Depth = "ttir",
    data_free: DataFree | None = None,
    budget_bytes: int | None = None,
    trace: bool = False,
    execution: Execution = "auto",
    source: str | None = None,
) -> ScriptReport:
    """Run ``path`` as ``__main__`` with ``sys.argv[1:] = args`` on a simulated ``gpu``.

    Exceptions of the script, and an interrupt by the user, are recorded in the report. Unless ``checks`` is "full",
    launches that take long are executed only when something looks at what they write. With ``data_free`` the device
    has no data: it counts and models at sizes that could not be executed. ``budget_bytes`` limits the memory of this
    machine that the device may use (default: half). ``trace`` keeps when each piece of device work ran.
    ``execution``: as in :func:`device`.
    ``source`` is a text to run in place of the file's, with the same lines.

    Raises:
        ValueError: an unknown GPU.
    """
    started = time.perf_counter()
    budget = default_budget(SCRIPT_SHARE) if budget_bytes is None else budget_bytes
    with device(
        gpu, checks=checks, depth=depth, data_free=data_free, budget_bytes=budget, execution=execution
    ) as dev:  # fmt: skip
        with uncompared(dev) if data_free is not None else nullcontext():
            dev.engine.run_script(lazy=checks != "full")
            with _given_to_children(gpu, checks, data_free):
                error = _run(path, args, source)
        peak = int(dev.engine.query("peak_bytes"))
    return _report(path, dev, error, peak, time.perf_counter() - started, trace)


def run_function(
    function: Callable[[], Any],
    path: Path,
    *,
    gpu: str = "h200",
    checks: str = "auto",
    data_free: DataFree | None = None,
) -> tuple[ScriptReport, Any]:
    """Call ``function``, whose source is in ``path``, on a simulated ``gpu``; return the report, with a trace, and what
    it returned.

    An exception of the function is recorded in the report, and the value is then None. Raises ``ValueError`` for an
    unknown GPU.
    """
    started = time.perf_counter()
    value, error = None, None
    with device(gpu, checks=checks, data_free=data_free) as dev:
        with uncompared(dev) if data_free is not None else nullcontext():
            try:
                value = function()
            except Exception as failure:
                error = _error_of(path, failure)
        peak = int(dev.engine.query("peak_bytes"))
    return _report(path, dev, error, peak, time.perf_counter() - started, trace=True), value


def _without_data(dev: SimDevice) -> WithoutData | None:
    if dev.engine.data_free is None:
        return None
    return WithoutData(
        error=dev.engine.accounts.sampling_error,
        programs=sum(launch.programs for launch in dev.launches),
        looked_at=sum(launch.looked_at or 0 for launch in dev.launches),
        depends_on_data=tuple(dependence.message for dependence in dev.engine.counters.dependences),
    )


def _run(path: Path, args: Sequence[str], source: str | None) -> ScriptError | None:
    with _as_program(path, args), _interruptible():
        try:
            if source is None:
                runpy.run_path(str(path), run_name="__main__")
            else:
                _run_text(path, source)
        except SystemExit as leaving:
            if leaving.code in (None, 0):
                return None
            return ScriptError(type="SystemExit", message=str(leaving.code), traceback="")
        except KeyboardInterrupt as failure:
            return _error_of(path, failure, INTERRUPTED)
        except Exception as failure:
            return _error_of(path, failure)
    return None


def _run_text(path: Path, source: str) -> None:
    """Run ``source`` as if it were the contents of ``path``; what looks up source lines finds these."""
    name, main, lines = str(path), sys.modules["__main__"], source.splitlines(keepends=True)
    module = ModuleType("__main__")
    module.__file__ = name
    linecache.cache[name] = (len(source), None, lines, name)  # without a time of change, it is not read anew
    sys.modules["__main__"] = module
    try:
        exec(compile(source, name, "exec"), module.__dict__)
    finally:
        sys.modules["__main__"] = main
        linecache.checkcache(name)
        linecache.cache.pop(name, None)


@contextmanager
def _as_program(path: Path, args: Sequence[str]) -> Iterator[None]:
    """Set ``sys.argv`` and ``sys.path`` as ``python FILE args`` would."""
    saved = sys.argv, list(sys.path)
    sys.argv = [str(path), *args]
    sys.path.insert(0, str(path.resolve().parent))
    try:
        yield
    finally:
        sys.argv, sys.path[:] = saved


def _error_of(path: Path, failure: BaseException, message: str | None = None) -> ScriptError:
    """Describe the exception with the frames of the user's own code, leaving out installed packages and this one."""
    frames = [frame for frame in traceback.extract_tb(failure.__traceback__) if not _is_library(frame.filename)]
    own = [frame for frame in frames if frame.filename == str(path)]
    text = "".join(traceback.format_list(frames))
    return ScriptError(
        type=type(failure).__name__,
        message=str(failure) if message is None else message,
        line=own[-1].lineno if own else None,
        traceback=text,
    )


def _is_library(filename: str) -> bool:
    if filename.startswith("<"):
        return True
    ours = {Path(__file__).parents[1], package_folder("ttir_executor").resolve()}
    folders = {Path(folder) for folder in sysconfig.get_paths().values()} | ours
    return any(folder in folders for folder in Path(filename).resolve().parents)


def _report(
    path: Path, dev: SimDevice, error: ScriptError | None, peak: int, seconds: float, trace: bool
) -> ScriptReport:
    return ScriptReport(
        script=str(path), device=f"sim:{dev.spec.name}", gpu=dev.spec.full_name, launches=tuple(_rows(dev)),
        operators=dev.operators, copies=dev.copies, findings=tuple(_merged(dev.findings)), prints=tuple(dev.prints),
        profile=dev.profile(), peak_bytes=peak, wall_seconds=seconds, error=error, without_data=_without_data(dev),
        spans=tuple(_spans(dev)) if trace else (),
    )  # fmt: skip


def _spans(dev: SimDevice) -> Iterator[TraceSpan]:
    """Device work in order; a launch of the script's own with its grid and configuration."""
    launches = iter(dev.launches)  # in the spans' order; one that takes no time has no span
    for span in dev.engine.accounts.timeline.spans:
        own = launches if span.owner == "custom" else iter(())
        one = next((one for one in own if (one.name, one.seconds) == (span.name, span.seconds)), None)
        settings = one and one.constexprs | {"warps": str(one.num_warps), "stages": str(one.num_stages)}
        yield TraceSpan(**asdict(span), grid=one and one.grid, settings=settings or {})


def _rows(dev: SimDevice) -> Iterator[LaunchRow]:
    """Merge equal launches into one row."""
    groups: dict[LaunchKey, list[LaunchRecord]] = {}
    for launch in dev.launches:
        groups.setdefault(launch_key(launch), []).append(launch)
    total = {key: sum(launch.seconds for launch in group) for key, group in groups.items()}
    costly = sorted(total, key=lambda key: -total[key])[:MAX_DETAILS]
    for key, group in groups.items():
        slow = dev.engine.accounts.slowest.get(key) if key in costly else None
        first, seconds = group[0], sum(launch.seconds for launch in group)
        slowest = max(group, key=lambda launch: launch.seconds)
        yield LaunchRow(
            kernel=first.name, identity=first.identity, grid=first.grid, constexprs=first.constexprs,
            num_warps=first.num_warps, num_stages=first.num_stages, calls=len(group),
            tuning=dev.engine.accounts.after_flush[key], unexecuted=dev.engine.work.unexecuted[key], seconds=seconds,
            bound=slowest.bound,
            roofline=sum(launch.roofline * launch.seconds for launch in group) / seconds if seconds else None,
            unique_bytes=sum(launch.unique_bytes for launch in group),
            dram_bytes=sum(launch.dram_bytes for launch in group), flops=sum(launch.flops for launch in group),
            registers=first.registers, spills=first.spills, shared_bytes=first.shared_bytes, occupancy=first.occupancy,
            detail=_with_text(detail_of(*slow, dev.spec)) if slow is not None and not slow[1].unpriced else None,
            ttir=slow[0].ttir if slow is not None else None,
        )  # fmt: skip


def _with_text(detail: LaunchDetail) -> LaunchDetail:
    lines = (
        line.model_copy(update={"text": linecache.getline(line.file, line.line).strip()[:MAX_DETAILED_TEXT]})
        for line in detail.lines
    )
    return detail.model_copy(update={"lines": tuple(lines)})


def _merged(findings: Sequence[SimFinding]) -> Iterator[SimFinding]:
    """Merge equal findings of several launches, adding up their counts."""
    merged: dict[tuple, SimFinding] = {}
    for finding in findings:
        key = (finding.kind, finding.kernel, finding.file, finding.line, finding.arg, finding.severity)
        count = finding.count + (merged[key].count if key in merged else 0)
        merged[key] = replace(merged.get(key, finding), count=count)
    yield from sorted(merged.values(), key=lambda finding: finding.severity)


# ---- processes that the script starts

_CHILD = "DRKERNEL_SIM_CHILD"
_ENTRY = Path(__file__).parent / "child"
"""folder of the module that a child's Python imports first"""
_ATTACHED: list[ExitStack] = []


@contextmanager
def _given_to_children(gpu: str, checks: str, data_free: DataFree | None) -> Iterator[None]:
    """Give Python processes that are started meanwhile a GPU of the same kind each, by their environment."""
    terms = {"gpu": gpu, "card": card_data(gpu), "checks": checks, "data_free": data_free and data_free.model_dump()}
    before = {name: os.environ.get(name) for name in (_CHILD, "PYTHONPATH")}
    os.environ[_CHILD] = json.dumps(terms)
    os.environ["PYTHONPATH"] = os.pathsep.join([str(_ENTRY), *filter(None, [before["PYTHONPATH"]])])
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def join_script(terms: str) -> None:
    """Attach this process, which a script has started, to a GPU of its own until it ends.

    What its kernels have printed, and the sanitizer's errors, are written at its end; its times are nobody's.
    """
    values = json.loads(terms)
    learn_card(values["card"])
    data_free = values["data_free"] and DataFree.model_validate(values["data_free"])
    budget = default_budget(SCRIPT_SHARE)
    attached = ExitStack()  # never closed: what ends after this function may still use the device
    dev = attached.enter_context(
        device(values["gpu"], checks=values["checks"], data_free=data_free, budget_bytes=budget)
    )
    dev.engine.run_script(lazy=values["checks"] != "full")

    def end() -> None:
        print(*dev.prints, sep="\n", end="\n" * bool(dev.prints), flush=True)
        for finding in _merged(dev.findings):
            if finding.severity == "error":
                at = f"{finding.file}:{finding.line}"
                print(f"drkernel sim: {finding.kind} in {finding.kernel} ({at}): {finding.message}", file=sys.stderr)

    atexit.register(end)
    _ATTACHED.append(attached)


# ---- comparisons without data


@contextmanager
def uncompared(dev: SimDevice) -> Iterator[None]:
    """Let comparisons of device tensors pass, because there is nothing to compare, and report each function once."""

    def passing(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def compare(*args: Any, **kwargs: Any) -> Any:
            if not any(isinstance(arg, DeviceTensor) for arg in (*args, *kwargs.values())):
                return original(*args, **kwargs)
            name = original.__name__
            message = f"{name} was taken to pass: there is nothing to compare"
            dev.engine.counters.missed(DataDependence("host_read", name, message))
            return True

        return compare

    compared = (torch.testing, "assert_close"), (torch, "allclose"), (torch, "equal")
    with replaced_attributes([(owner, name, passing(getattr(owner, name))) for owner, name in compared]):
        yield
