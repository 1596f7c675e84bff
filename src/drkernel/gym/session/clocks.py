"""The clock of a real GPU's multiprocessors, as NVIDIA's management library (NVML) tells the judge.

It is read in the judge's process, by the GPU's UUID, where no candidate is: before and after a timed block, and never
in it, where asking might take time from the calls. What a clock does between the two is not seen.
"""

import ctypes
from contextlib import suppress
from dataclasses import dataclass

from drkernel.gym.device import Device, uuid_of

LIBRARY = "libnvidia-ml.so.1"
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
            self._nvml = ctypes.CDLL(LIBRARY)
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
