"""Devices: the meaning of a device string, and what can be observed of a candidate there.

A simulated GPU is a process owned by the judge, so the judge itself observes everything a candidate does on it. A real
GPU is controlled by the candidate's own process: some things are reported by that process, others cannot be known at
all. Each device declares this in :attr:`Device.observes`, and :func:`unchecked` derives the list of checks that a
verdict on that device must do without.

The clock of a real GPU's multiprocessors is what NVIDIA's management library (NVML) tells the judge. It is read in the
judge's process, by the GPU's UUID, where no candidate is: before and after a timed block, and never in it, where asking
might take time from the calls. What a clock does between the two is not seen.
"""

import ctypes
import fcntl
import glob
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from drkernel.config import ConfigError, did_you_mean
from drkernel.sim.spec import GPUSpec, get_spec, known_gpus
from drkernel.verdict import NotChecked, ObservedBy, TimingKind

Observable = Literal[
    "launches", "operators", "data_flow", "copies", "host_reads", "late_work", "memory_errors", "races", "skip",
    "disturb",
]  # fmt: skip
MEANING: dict[Observable, str] = {
    "launches": "launches of the candidate's own kernels",
    "operators": "PyTorch operators that do device work",
    "data_flow": "what each launch reads and writes",
    "copies": "copies between host and device within a call",
    "host_reads": "what the host learns from the device within a call",
    "late_work": "device commands after forward has returned",
    "memory_errors": "accesses outside of allocations, misaligned or of unwritten memory",
    "races": "accesses of two programs to the same bytes",
    "skip": "keeping the candidate's launches from being executed",
    "disturb": "changing what the candidate's kernels wrote while the host reads what it read before",
}


LOCKS = "/tmp"
"""folder of the cards' locks, the same for everybody on a machine, whatever TMPDIR says"""


@dataclass(frozen=True)
class Device:
    """One place to run candidates; made by :func:`parse_device`."""

    name: str
    """as in settings: 'sim:h200', 'cuda:0'"""
    kind: Literal["sim", "cuda", "cpu"]
    """'cpu' is a real session without a GPU: it serves tests, and no request may name it"""
    full_name: str
    """the name shown to people and models: 'NVIDIA H200'"""
    spec: GPUSpec | None
    """published figures of a simulated GPU"""
    observes: Mapping[Observable, ObservedBy]
    """what can be observed of a candidate, and by which side"""

    @property
    def simulated(self) -> bool:
        """Whether the judge owns the device as a process of its own."""
        return self.spec is not None

    @property
    def timing(self) -> TimingKind:
        """The kind of every time on this device."""
        return "modelled" if self.simulated else "measured"

    def __hash__(self) -> int:
        return hash(self.name)


SIMULATED: Mapping[Observable, ObservedBy] = {observable: "device" for observable in MEANING}
REAL: Mapping[Observable, ObservedBy] = {"launches": "runner", "operators": "runner", "skip": "runner"}


def parse_device(name: str) -> Device:
    """Parse a device string. Raises :class:`ConfigError`, which lists the valid ones, for an unknown device."""
    kind, _, rest = name.partition(":")
    known = kind == "sim" and rest.partition("@")[0] in known_gpus()
    try:
        return _device(name, get_spec(rest) if known else None)
    except ConfigError:
        raise
    except ValueError as error:  # the host
        raise ConfigError(str(error)) from None


@lru_cache
def _device(name: str, spec: GPUSpec | None) -> Device:
    kind, _, rest = name.partition(":")
    if spec is not None:
        return Device(f"sim:{spec.name}", "sim", spec.full_name, spec, SIMULATED)
    if kind == "cuda" and rest.isascii() and rest.isdigit() and str(int(rest)) == rest and len(rest) < 4:
        return Device(name, "cuda", f"CUDA device {rest}", None, REAL)
    if name == "cpu":
        return Device(name, "cpu", "CPU", None, REAL)
    gpus = [f"sim:{gpu}" for gpu in known_gpus()]
    hint = did_you_mean(name, gpus) or did_you_mean(f"sim:{name}", gpus)
    raise ConfigError(
        f"no device named {name!r}; there are: {', '.join(gpus)} (simulated GPUs), and cuda:N (the N-th GPU){hint}"
    )


def kinds_here() -> list[str]:
    """Return the kinds of device that this machine has, without starting CUDA."""
    return ["sim", "cuda"] if glob.glob("/dev/nvidia[0-9]*") else ["sim"]


def seen_alone(device: Device, environment: Mapping[str, str]) -> dict[str, str]:
    """The variables by which CUDA shows a process nothing but ``device``, a real GPU, as its device 0.

    ``environment`` is that of the process for which ``device`` has its number. An entry of its list (an index, a GPU's
    UUID or a MIG instance's) is given on as it stands. Raises :class:`ConfigError` when the list has no such entry.
    """
    number, listed = int(device.name.partition(":")[2]), environment.get("CUDA_VISIBLE_DEVICES")
    entries = [str(number)] * (number + 1) if listed is None else [entry.strip() for entry in listed.split(",")]
    if number >= len(entries) or entries[number] in ("", "-1"):
        raise ConfigError(f"there is no {device.name} in CUDA_VISIBLE_DEVICES={listed}")
    order = environment.get("CUDA_DEVICE_ORDER")  # what an index means
    return {"CUDA_VISIBLE_DEVICES": entries[number], **({} if order is None else {"CUDA_DEVICE_ORDER": order})}


@contextmanager
def alone_on(device: Device) -> Iterator[None]:
    """Hold the one lock that this machine has for a real GPU, whichever process asks and by whatever number; the system
    takes it from a process that dies."""
    path = os.path.join(LOCKS, f"drkernel-{uuid_of(device)}.lock")
    try:
        lock = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)  # it may be another user's
    except FileNotFoundError:
        lock = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_CREAT, 0o644)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def uuid_of(device: Device) -> str:
    """The UUID of a real GPU, and of the one that a MIG instance is part of; the device's name where torch has none."""
    import torch

    number = int(device.name.partition(":")[2] or 0)
    if torch.cuda.is_available() and number < torch.cuda.device_count():
        return str(torch.cuda.get_device_properties(number).uuid)
    return device.name.replace(":", "-")


def title_of(device: Device) -> str:
    """The device with the name of its GPU: 'sim:h200 NVIDIA H200'; asks torch for that of a real one."""
    if device.kind == "cuda":
        import torch

        if torch.cuda.is_available() and int(device.name.partition(":")[2]) < torch.cuda.device_count():
            return f"{device.name} {torch.cuda.get_device_name(torch.device(device.name))}"
        return device.name
    return f"{device.name} {device.full_name}"


def gpu_name(device: Device) -> str:
    """The GPU's name as shown to people and models: 'NVIDIA H200'."""
    title = title_of(device).partition(" ")[2]
    return title or device.full_name


@dataclass(frozen=True)
class Check:
    """An experiment of the judge, and what must be observable for it."""

    name: str
    needs: tuple[Observable, ...]
    timing: TimingKind | None = None
    """only on devices whose times are of this kind; None: on all"""


CHECKS: tuple[Check, ...] = (
    Check("no_custom_kernel", ("launches",)),
    Check("decoy_kernel (launches skipped)", ("launches", "skip")),
    Check("decoy_kernel (results disturbed)", ("host_reads", "disturb")),
    Check("copy_kernel", ("data_flow", "operators")),
    Check("late_work", ("late_work",)),
    Check("host_compute", ("copies",), "modelled"),  # a measured time has the host's work in it
    Check("out_of_bounds, misaligned, use_after_free, uninitialized", ("memory_errors",)),
    Check("race", ("races",)),
)
"""The checks that need more than the answers of a call, in the order in which docs/gym.md lists them."""


def unchecked(device: Device, observes: Mapping[Observable, ObservedBy] | None = None) -> Iterator[NotChecked]:
    """The checks that cannot be made on ``device``, each with its reason.

    ``observes`` is what a session can observe of one candidate, where that is less than the device allows.
    """
    able = device.observes if observes is None else observes
    for check in CHECKS:
        missing = [need for need in check.needs if need not in able]
        if missing and check.timing in (None, device.timing):
            why = " and ".join(MEANING[need] for need in missing)
            what = why if missing[0] in ("skip", "disturb") else f"observing {why}"
            yield NotChecked(check=check.name, why=f"{device.name} does not allow {what}")


# ---- the clock of a real GPU


NVML = "libnvidia-ml.so.1"
_SLOWED_BY = {0x4: "power", 0x8: "hardware", 0x20: "temperature", 0x40: "temperature", 0x80: "power brake"}
"""bits of NVML's reasons that are no setting of a user -> what takes the clock down"""


class NoClock(Exception):
    """No clock can be read; ``str`` says why."""


@dataclass(frozen=True)
class ClockReading:
    """A clock at one moment."""

    mhz: int
    slowed_by: frozenset[str] = frozenset()
    """what keeps it below what it was set to; empty also where the GPU does not tell"""


class CardClock:
    """The clock of one GPU; of a MIG instance, that of the GPU that it is part of."""

    def __init__(self, device: Device):
        """Raises :class:`NoClock` when it cannot be read."""
        try:
            self._nvml = ctypes.CDLL(NVML)
        except OSError as error:
            raise NoClock(f"NVIDIA's management library does not load: {error}") from None
        self._card = ctypes.c_void_p()
        self._ask("nvmlInit_v2")
        uuid = f"GPU-{uuid_of(device).removeprefix('GPU-')}"
        self._ask("nvmlDeviceGetHandleByUUID", uuid.encode(), ctypes.byref(self._card))
        self.read()

    def read(self) -> ClockReading:
        """The clock now. Raises :class:`NoClock`."""
        mhz, reasons = ctypes.c_uint(), ctypes.c_ulonglong()
        self._ask("nvmlDeviceGetClockInfo", self._card, 1, ctypes.byref(mhz))  # 1: the multiprocessors' clock
        with suppress(NoClock):  # not every GPU tells reasons
            self._ask("nvmlDeviceGetCurrentClocksThrottleReasons", self._card, ctypes.byref(reasons))
        if not mhz.value:
            raise NoClock("NVML says that the clock stands still")
        return ClockReading(mhz.value, frozenset(name for bit, name in _SLOWED_BY.items() if reasons.value & bit))

    def _ask(self, name: str, *arguments: object) -> None:
        function = getattr(self._nvml, name, None)
        if function is None:
            raise NoClock(f"NVML has no {name}")
        if code := function(*arguments):
            say = self._nvml.nvmlErrorString
            say.restype = ctypes.c_char_p
            raise NoClock(f"{name}: {say(code).decode(errors='replace')}")
