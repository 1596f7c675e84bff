"""Modelled time of a reference, and the speedup of a candidate over it.

The reference runs on a simulated device of the judge's own, in this process: trusted code, the same engine, the same
cost model and the same accounting as the candidate's device. Nothing of it is patched into the process: the two modes
that carry operators to the device are per thread, so that many judges may work side by side.

Only times at the checked sizes come from here; those at a task's own sizes come from ``reference_at_size.py``.
"""

import math
from bisect import bisect
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Literal

import torch
from torch import nn
from torch.utils._pytree import tree_map

from drkernel.base.recent import Recent
from drkernel.gym.judge import findings as show
from drkernel.sim.gpu.engine import DeviceEngine
from drkernel.sim.host.attach import BelowModes, operators_on
from drkernel.sim.host.tensor import DeviceLink
from drkernel.sim.spec import GPUSpec
from drkernel.tasks.errors import TaskError
from drkernel.tasks.promote import copied
from drkernel.verdict import Bound, Finding, Profile, ProfileRow, Speedup, Timing

_known: Recent[tuple[str, str, bool], Profile] = Recent(512)


def reference_profile(
    key: str, spec: GPUSpec, model: nn.Module, inputs: list[Any], *, conv_tf32: bool = False
) -> Profile:
    """The modelled profile of one eager call of ``model(*inputs)`` on a GPU, cached under all but model and inputs.

    ``key`` names task and sizes; the modelled time depends on shapes and dtypes alone. Raises :class:`TaskError` when
    the reference does not run on the device, with its own message.
    """
    cached = (key, spec.name, conv_tf32)
    profile = _known.get(cached)
    if profile is None:
        profile = _known[cached] = model_profile(spec, model, inputs, conv_tf32=conv_tf32)
    return profile


def model_profile(spec: GPUSpec, model: nn.Module, inputs: list[Any], *, conv_tf32: bool = False) -> Profile:
    """Run ``model(*inputs)`` (host tensors) on a fresh simulated device of this process and return its profile."""
    engine = DeviceEngine(spec, checks="off")
    engine.accounts.conv_tf32 = conv_tf32
    with host_modes(engine) as link:
        try:
            # moved as a user's .cuda() would; a second call is timed, as the candidate's calls come after a first one
            resident = _to_device(copied(model), link, engine)
            moved = tree_map(lambda leaf: _upload(leaf, link, engine), inputs)
            with torch.no_grad():
                resident(*moved)
                engine.reset_counters()
                resident(*moved)
        except Exception as error:
            raise TaskError(
                f"the reference does not run on {spec.full_name}: {type(error).__name__}: {error}"
            ) from error
        return engine.profile()


@contextmanager
def host_modes(engine: DeviceEngine) -> Iterator[DeviceLink]:
    """Make host tensors of ``engine`` work in this thread; other threads are unaffected."""
    link = DeviceLink(BelowModes(engine))
    try:
        with operators_on(link):
            yield link
    finally:
        link.close()


def _upload(leaf: Any, link: DeviceLink, engine: DeviceEngine) -> Any:
    if not isinstance(leaf, torch.Tensor):
        return leaf
    with torch._C.DisableTorchFunction():
        return link.wrap(engine.register(leaf.detach().clone(memory_format=torch.preserve_format)))


def _to_device(model: nn.Module, link: DeviceLink, engine: DeviceEngine) -> nn.Module:
    """``model`` with parameters and buffers on the device, in place; shared ones stay shared."""
    moved: dict[int, Any] = {}

    def move(tensor: torch.Tensor) -> Any:
        if id(tensor) not in moved:
            on_device = _upload(tensor, link, engine)
            if isinstance(tensor, nn.Parameter):
                on_device = nn.Parameter(on_device, requires_grad=tensor.requires_grad)  # torch.matmul looks at it
            moved[id(tensor)] = on_device
        return moved[id(tensor)]

    for module in model.modules():
        for table in (module._parameters, module._buffers):
            for name, tensor in table.items():
                if tensor is not None:
                    table[name] = move(tensor)
        for name, value in vars(module).items():  # plain tensor attributes, which .cuda() would leave on the host
            if type(value) is torch.Tensor:
                setattr(module, name, move(value))
    return model


def modelled_timing(profile: Profile) -> Timing:
    """The time of one call: from its first command to its last completion, the gaps between launches included."""
    return Timing(kind=profile.kind, device=profile.device, seconds=profile.elapsed_seconds)


def bytes_to_host(profile: Profile) -> float:
    """Bytes that a call copied from the device to the host."""
    return sum(row.bytes or 0.0 for row in profile.rows if row.owner == "copy" and row.name.endswith("device to host"))


def without_price(timed: Sequence[Profile], reference: Profile) -> list[Finding]:
    """The findings on work that has no price, the task's before the candidate's own; none when all has one."""
    mine = {row.name: row.unpriced for profile in timed for row in profile.rows if row.unpriced}
    theirs = {row.name: row.unpriced for row in reference.rows if row.unpriced}
    own = {name: why for name, why in mine.items() if name not in theirs}
    found = [(theirs, True)] if theirs else []
    found += [(own, False)] if own else []
    return [show.unpriced_operator(rows, of_the_task=of_the_task) for rows, of_the_task in found]


# ---- the error of modelled times

Baseline = Literal["eager", "compile"]
"""how the reference ran: operator by operator, or through TorchInductor's code"""
CONFIDENCE = 0.9
"""coverage of the intervals: the residuals are 90th percentiles"""
SIZES = 1e-5, 5e-5
"""seconds of one call at which widths change: small, middle, large"""
CUSTOM = {"memory": (0.20, 0.35, 0.35), "latency": (0.20, 0.50, 0.50), "compute": (0.45, 0.45, 0.50)}
"""Triton kernels by what bounds them and by size: about the 90th percentiles over the half of TritonBench's files on
A100 that constants were chosen on and a half of an H200's rows, each file weighed by the root of its rows (memory 0.14,
0.30, 0.44, latency 0.16, 0.50, 0.45, compute 0.31 and 0.27 from 10 us on); Liger's products on H100 have 0.55"""
LIBRARY = {"memory": (0.25, 0.27, 0.27), "latency": (0.44, 0.79, 0.79), "compute": (0.38, 0.42, 0.38)}
"""PyTorch's operators: the same half of TritonBench's, but for the longest waits, where a few files are off by more"""
DIRECT = 0.97
"""Factorisations and solves, whose constants are orders of magnitude: 80 rows of the same half"""
CONVOLUTION = 1.0
"""Convolutions and windows under a compiler, where they are other kernels, in another layout: KernelBench's published
compiled times on H100, 100 of 111 problems within"""
COMPILED = 0.30
"""Everything else that a compiler generates or calls: those without convolutions and windows"""
COPY = 0.30
HOST = 0.40
"""time in which the device waits for the host: level 3 of KernelBench, between clouds"""
TOGETHER: dict[Bound, float] = {"memory": 0.34, "latency": 0.11, "compute": 0.27}
"""Correlation of the errors of a Triton kernel and of an operator that are bounded alike, on one card: the product of
their mean errors over that of their root mean squares, in that half of TritonBench's rows"""
SAME_HOST = 0.5
"""Correlation of the errors of host time: both sides share the host, not what a launch takes against an operator"""


def _row_error(row: ProfileRow, baseline: Baseline) -> float:
    if row.owner != "copy" and baseline == "compile":
        return CONVOLUTION if any(word in row.name for word in ("convolution", "pool")) else COMPILED
    if row.owner == "copy":
        return COPY
    if row.owner == "library" and any(word in row.name for word in ("linalg", "cholesky", "solve", "geqrf")):
        return DIRECT
    return (CUSTOM if row.owner == "custom" else LIBRARY)[row.bound or "latency"][
        bisect(SIZES, row.seconds / row.calls)
    ]


def _in_common(reference: Profile, candidate: Profile) -> dict[str, float]:
    """Seconds, by name, of what both sides run alike: the same operators of PyTorch, or copies, at the same price."""
    theirs, ours = (
        {(row.name, f"{row.seconds / row.calls:.9g}"): row.seconds for row in side.rows if row.owner != "custom"}
        for side in (reference, candidate)
    )
    return {key[0]: min(seconds, theirs[key]) for key, seconds in ours.items() if key in theirs}


def _errors(profile: Profile, baseline: Baseline, common: Mapping[str, float]) -> tuple[float, float, Bound]:
    """(Error of a call's device time beyond what is ``common``, of its idle time, by share; what bounds the former)."""
    busy = sum(row.seconds for row in profile.rows)
    idle = max(0.0, profile.elapsed_seconds - busy)
    whole = max(busy + idle, 1e-30)
    bounds: Counter[Bound] = Counter()
    device = 0.0
    for row in profile.rows:
        seconds = row.seconds - common.get(row.name, 0.0)
        bounds[row.bound or "latency"] += seconds  # type: ignore[assignment]
        device += seconds * _row_error(row, baseline)
    return device / whole, idle * HOST / whole, max(bounds, key=lambda one: bounds[one], default="latency")


def log_error(profile: Profile, baseline: Baseline = "eager") -> float:
    """Return the error of a call's modelled time: that of its rows and of the idle time, all in one direction."""
    return sum(_errors(profile, baseline, {})[:2])


def ratio_error(reference: Profile, candidate: Profile, baseline: Baseline = "eager") -> float:
    """Return the error of one call's time over another's: of both sides, less what they have in common.

    Work that both run alike is off alike: it counts by the difference of its shares alone.
    """
    common = _in_common(reference, candidate)
    ours, our_host, bound = _errors(candidate, "eager", common)
    theirs, their_host, their_bound = _errors(reference, baseline, common)
    alike = sum(common[row.name] * _row_error(row, "eager") for row in candidate.rows if row.name in common)
    alike *= abs(1.0 / reference.elapsed_seconds - 1.0 / candidate.elapsed_seconds) if common else 0.0
    shared = TOGETHER[bound] if bound == their_bound and baseline == "eager" else 0.0
    device = ours**2 + theirs**2 - 2.0 * shared * ours * theirs
    host = our_host**2 + their_host**2 - 2.0 * SAME_HOST * our_host * their_host
    return math.sqrt(device + host + alike**2)


def speedup_of(reference: Profile, candidate: Profile, *, baseline: Baseline = "eager") -> Speedup | None:
    """Return reference over candidate with the interval implied by the model's error; None when nothing was timed.

    ``baseline`` says how the reference was run.
    """
    if reference.elapsed_seconds <= 0 or candidate.elapsed_seconds <= 0:
        return None
    ratio = reference.elapsed_seconds / candidate.elapsed_seconds
    off = ratio_error(reference, candidate, baseline)
    low, high = ratio * math.exp(-off), ratio * math.exp(off)
    device = reference.total_seconds / candidate.total_seconds if candidate.total_seconds > 0 else None
    return Speedup(value=ratio, low=low, high=high, confidence=CONFIDENCE, kind="modelled", device_value=device)
