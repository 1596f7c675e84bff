"""A card in the tests: the simulated GPU inside the runner, where a real one is.

To the judge it is ``cuda:0``: its runner holds the tensors, reports values, launches and times, and the session is the
measured path's own. Kernels are executed by the simulator without its checks, in the order of their programs; what a
call takes is what this machine takes to simulate it, by the host's clock; and a profiler's trace is made up from what
the simulated GPU has counted. ``card_factory(gym.factory)`` opens sessions on it, and on simulated GPUs as ever.

In the zygote this is imported before torch, so torch is imported where it is used.
"""

import atexit
import ctypes
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import farm

CARD = "h200"
MEMORY = 512 << 20
CARD_TERMS = {"device": "cuda:0", "trials": 10, "time_at": "checked"}
"""settings of an evaluation there"""
_ITS_INPUT = (
    "no answer is in the process: what it finds is its own input, which the runner holds where tensors are its own"
)
_PRICE = "no cheat on a card: it is about a price that the simulator has not, and the card has measured the time"
NOT_CAUGHT = {
    "read_the_answer_by_gc": _ITS_INPUT,
    "read_the_answer_from_frames": _ITS_INPUT,
    "read_the_answer_from_threads": _ITS_INPUT,
    "unpriced_matrix_exponential": _PRICE,
    "unpriced_trilinear": _PRICE,
}
"""entry of the corpus that does not end there as it must -> why"""
_BOOT = """
import json, os, sys
fd = int(sys.argv[1])
config = json.loads(os.read(int(sys.argv[-1]), 65536))
sys.path[:0] = config["paths"]
import simulated_card
simulated_card.install()
from drkernel.gym.runner.zygote import main
main(fd, config["folder"], config["without"])
"""


def graded_on_a_card(folder: str) -> list[Any]:
    """The entries of 'cheats' or 'honest' but for those about other sizes than were checked: a card times what it
    checks, and at those sizes this machine would need hours."""
    from corpus_grading import entries

    return [entry for entry in entries(folder) if entry.root != "sizes" and entry.expect != "credited"]


# ---- in the zygote and its runners


def install() -> None:
    """In a zygote: have every runner on cuda:N find the card."""
    from drkernel.gym.runner import child

    original = child.runner_main

    def runner_main(*arguments: Any) -> Any:
        from drkernel.gym.runner import cuda
        from drkernel.sim.host.tensor import DeviceTensor

        if not hasattr(cuda.CudaRunner, "card"):
            # a fill of 64 MiB takes this machine long
            put = {"CudaRunner": _card_runner(cuda), "PLAIN": (*cuda.PLAIN, DeviceTensor), "POISONED_BYTES": 1 << 20}
            vars(cuda).update(put)
        return original(*arguments)

    vars(child).update(runner_main=runner_main)


def _card_runner(cuda: Any) -> type:
    import torch

    from drkernel import sim
    from drkernel.sim.host.triton_kernel import SimKernel

    class CardRunner(cuda.CudaRunner):  # type: ignore[misc,name-defined]
        """The runner of a real GPU, with a simulated one."""

        card: Any = None

        def __init__(self, channel: Any, scratch: str, device: str):
            if device.startswith("cuda"):
                self._held = sim.device(CARD, checks="off", memory_bytes=MEMORY, execution="at once")
                self.card = self._held.__enter__()
            super().__init__(channel, scratch, device)
            self._launches.watch_compiled(SimKernel)

        def _synchronize(self) -> None:
            if self.card is not None:
                torch.cuda.synchronize()

        def _mark(self) -> Any:
            return cuda._HostMark()

        @contextmanager
        def _tracing(self, wanted: bool) -> Iterator[list[Any]]:
            if self.card is None or not wanted:
                with super()._tracing(wanted) as trace:
                    yield trace
                return
            self.card.reset_counters()
            yield [_SyntheticTrace(self.card)]

    return CardRunner


class _SyntheticTrace:
    """What the card has done since its counters were reset, as a profiler would write it."""

    def __init__(self, card: Any):
        self._card = card

    def export_chrome_trace(self, path: str) -> None:
        """Write Chrome's format, as Kineto does."""
        events: list[dict[str, Any]] = []
        start = 0.0
        for number, row in enumerate(self._card.profile().rows, start=1):
            arguments = {"External id": number} if row.owner == "library" else {}
            if arguments:
                name = row.name.replace(".", "::", 1)
                events.append({"ph": "X", "cat": "cpu_op", "name": name, "ts": start, "dur": 1.0, "args": arguments})
            kind = "gpu_memcpy" if row.owner == "copy" else "kernel"
            for _ in range(row.calls):
                lasts = row.seconds / row.calls * 1e6
                told = {"ph": "X", "cat": kind, "name": row.name, "ts": start, "dur": lasts, "args": arguments}
                events.append(told)
                start += lasts
        Path(path).write_text(json.dumps({"traceEvents": events}))


# ---- in the judge


def card_launcher() -> Any:
    """A zygote of its own whose runners on cuda:N have the card."""
    if farm.FOLDER in os.environ:
        return farm.launcher_class(card=True)()
    from drkernel.gym.runner import launcher

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(launcher, "_BOOT", _BOOT)
        paths = [*launcher.import_paths(), str(Path(__file__).parent)]
        patch.setattr(launcher, "import_paths", lambda: paths)
        return launcher.Launcher()


class CardFactory:
    """Opens sessions on the card, and on simulated GPUs; the zygote is its own."""

    def __init__(self) -> None:
        from drkernel.gym.session.factory import SessionFactory

        self.launcher = card_launcher()
        self.launcher.wait_ready()
        self.simulated = SessionFactory(launcher=self.launcher, spares=0)
        self.health = self.simulated.health

    def open(self, settings: Any) -> Any:
        """A session on the settings' device."""
        from drkernel.gym.runner.launcher import JobTerms
        from drkernel.gym.sandbox.layers import RunnerLimits
        from drkernel.gym.session.cuda import CudaSession

        if settings.place.simulated:
            return self.simulated.open(settings)
        limits = RunnerLimits(memory_bytes=2 << 30, allow_exec=True, processes=512, open_files=4096)
        return CudaSession(self.launcher, settings, self.launcher.spawn(JobTerms(settings.device, limits, 0)))

    def close(self) -> None:
        """End the zygote."""
        self.launcher.close()


_NVML = """
#include <string.h>
static char card[128];
static unsigned clock_mhz = 1980;
static unsigned long long reasons;
void set_clock(unsigned mhz, unsigned long long slowed_by) { clock_mhz = mhz; reasons = slowed_by; }
int nvmlInit_v2(void) { return 0; }
int nvmlDeviceGetHandleByUUID(const char *uuid, void **found) {
    if (strncmp(uuid, "GPU-", 4)) return 2;
    *found = strncpy(card, uuid, 127);
    return 0;
}
int nvmlDeviceGetClockInfo(void *of, int which, unsigned *mhz) {
    if (of != card || which != 1) return 2;
    *mhz = clock_mhz;
    return 0;
}
int nvmlDeviceGetCurrentClocksThrottleReasons(void *of, unsigned long long *bits) { *bits = reasons; return 0; }
const char *nvmlErrorString(int code) { return code == 2 ? "Invalid Argument" : "Unknown Error"; }
"""


@cache
def nvml() -> ctypes.CDLL:
    """A library that stands for NVML, whose clock stands at 1980 MHz until ``set_clock(mhz, reasons)``."""
    folder = Path(tempfile.mkdtemp(prefix="drkernel-nvml-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    source, library = folder / "nvml.c", folder / "libnvidia-ml.so.1"
    source.write_text(_NVML)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)
    return ctypes.CDLL(str(library))


def use_short_blocks(patch: pytest.MonkeyPatch) -> None:
    """Make the judge's blocks fit a card that this machine simulates, and the card one that it knows, with a clock."""
    from drkernel.gym import device
    from drkernel.gym.judge import co_judge, measured_timing
    from drkernel.sim.spec import get_spec

    nvml().set_clock(1980, 0)
    patch.setattr(device, "NVML", nvml()._name)
    patch.setattr(measured_timing, "SPIN_SECONDS", 0.0)

    patch.setattr(measured_timing, "FLUSH_BYTES", 1 << 12)
    patch.setattr(measured_timing, "BLOCK_SECONDS", 5e-3)
    for module in (co_judge, measured_timing):
        patch.setattr(module, "gpu_name", lambda place: get_spec(CARD).full_name)
