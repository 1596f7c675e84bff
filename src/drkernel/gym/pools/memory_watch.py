"""Watches in /proc how much of this machine's memory all slots of a pool hold together, and ends what grew too large.

Every evaluation has limits of its own: its judge's budget, its runner's and its device's. Together they may be more
than the machine has, and some memory no limit of a process sees. So the pool looks at what is really held. A judge that
has grown beyond its budget is ended. When all of it together is more than the pool may take, the judge or the job that
has grown most is ended: at least one then holds more than its share. Either is a verdict of its own (the task is too
large, or the candidate is out of memory), where the system's choice of a victim might fall on anybody.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass

from drkernel.gym.pools.judge_process import JudgeProcess
from drkernel.gym.pools.shared_zygote import SharedZygote
from drkernel.gym.runner.processes import children_of, job_bytes, private_bytes, tree_of

LOOK_SECONDS = 0.1
LEAST_BYTES = 128 << 20
"""a process that has grown by less is never ended: that would free next to nothing"""
GONE_SECONDS = 5.0
"""seconds that memory may take to come back before another process is ended"""


@dataclass(frozen=True)
class Grown:
    """A judge, or a job's runner or device, that holds more memory than when it started."""

    pid: int
    nbytes: int
    seat: JudgeProcess | None
    """the slot whose judge it is; None for a job's process"""
    zygote: SharedZygote | None
    """the slot whose job it is; None for a judge"""
    evaluation: int = 0
    """its number among its judge's jobs"""


class MemoryWatch:
    """Watches while there is work; a thread of the pool. ``most_bytes`` limits all slots together, ``budget`` one
    judge."""

    def __init__(self, most_bytes: int, budget: int, seats: Sequence[JudgeProcess], zygotes: Sequence[SharedZygote]):
        self.most_bytes, self.budget = most_bytes, budget
        self.ended = 0
        """judges and jobs ended so far"""
        self._seats, self._zygotes = seats, zygotes
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="drkernel-memory", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop watching."""
        self._stop.set()
        self._thread.join(10)

    def _run(self) -> None:
        while not self._stop.wait(LOOK_SECONDS):
            if any(seat.busy for seat in self._seats):
                self.look()

    def look(self) -> None:
        """Look once, and end the process that must be ended, if any."""
        total, grown = self._measure()
        for judge in [one for one in grown if one.seat is not None and one.nbytes > self.budget + LEAST_BYTES]:
            self._end(judge, f"took {judge.nbytes} bytes")
            return
        largest = max(grown, key=lambda one: one.nbytes, default=None)
        if total > self.most_bytes and largest is not None and largest.nbytes >= LEAST_BYTES:
            self._end(largest, f"all slots together hold {total} bytes, and may hold {self.most_bytes}")

    def _measure(self) -> tuple[int, list[Grown]]:
        """Bytes held by every process of the pool, and what each judge and job has grown by."""
        total, grown = 0, []
        for seat in self._seats:
            evaluation, pid = seat.evaluation, seat.pid
            held = 0 if pid is None else private_bytes(pid)
            total += held
            if pid is not None and seat.busy:
                grown.append(Grown(pid, held - seat.idle_bytes, seat, None, evaluation))
        for zygote in self._zygotes:
            launcher = zygote.launcher
            if launcher is None or launcher.pid is None:
                continue
            own = [private_bytes(pid) for pid in (launcher.pid, launcher.nursery) if pid]
            total += sum(own)
            for root in children_of(launcher.pid):
                if root == launcher.nursery:
                    continue
                # a forked process counts what it shares with the one that it was forked from
                more = sum(max(0, job_bytes(pid) - max(own)) for pid in tree_of(root))
                total += more
                grown.append(Grown(root, more, None, zygote))
        return total, grown

    def _end(self, one: Grown, why: str) -> None:
        """End it and wait until its memory is back."""
        if one.seat is not None:
            if not one.seat.end_over_memory(one.evaluation, one.nbytes, why):
                return  # that evaluation is over
        elif one.zygote is not None and (launcher := one.zygote.launcher) is not None:
            launcher.end_over_memory(one.pid)
        self.ended += 1
        deadline = time.monotonic() + GONE_SECONDS
        while time.monotonic() < deadline and not self._stop.is_set() and _holds_memory(one.pid):
            time.sleep(0.01)


def _holds_memory(pid: int) -> bool:
    return os.path.exists(f"/proc/{pid}") and private_bytes(pid) > 0
