"""Interleaves programs: a launch whose programs synchronise switches between them at each synchronising access.

Programs that run one after another always see the completed work of earlier ones, so an acquire at the start and a
release at the end would seem to order everything. Here several programs are in progress at a time, each in a thread of
its own. One of them runs until its next synchronising access, where a secret draw decides which continues. A program
can thus wait for a later one. Nothing runs in parallel, so counts and memory stay exact.
"""

from __future__ import annotations

import ctypes
import random
import threading
from typing import Any

from ttir_executor.lower.runtime import Ctx, Status

MAX_INTERLEAVED = 4096
"""most programs of a launch that takes turns"""
UNDER_WAY = 16
"""most programs that have begun and not ended"""
PATIENT_UNDER_WAY = 1024
"""the same, where programs may wait for later ones: what a large GPU has resident"""
SEGMENTS, PATIENT_SEGMENTS = 1 << 9, 1 << 14
"""most turns of each program; one that synchronises more often is waiting for something that never comes"""
PATIENT_TURNS = 1 << 18
"""most turns of all programs together, likewise"""
SWITCHES = 2000
"""after so many switches they become rare"""
RARELY = 1 / 64
SPINS = 64
"""synchronising accesses after which another program gets a turn in any case"""
STACK = 1 << 19
"""bytes of a thread's stack: a kernel's arrays lie elsewhere"""
_YIELD = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class Turns:
    """One launch's programs, taking turns. ``workers`` share their log of synchronising accesses."""

    def __init__(self, call: Any, workers: list[Any], programs: int, seed: int | str, *, patient: bool = False):
        self._call, self._workers, self._programs = call, workers, programs
        self._rng = random.Random(f"turns:{seed}")
        self._patient = patient
        self._segments = PATIENT_SEGMENTS if patient else SEGMENTS
        self._next = 0
        self._switches = self._spins = 0
        self._stopped = False
        self._alive = list(range(len(workers)))
        self._wake = [threading.Event() for _ in workers]
        self._ended = threading.Event()
        self._yields = [_YIELD(lambda _, mine=k: self._yield(mine)) for k in range(len(workers))]
        for worker, callback in zip(workers, self._yields, strict=True):
            worker.ctx[Ctx.YIELD] = ctypes.cast(callback, ctypes.c_void_p).value

    def run(self) -> None:
        """Run every program to its end, or until one is stopped; the status is in the workers' contexts."""
        threads = [threading.Thread(target=self._live, args=(k,), daemon=True) for k in range(len(self._workers))]
        before = threading.stack_size(STACK)
        try:
            for thread in threads:
                thread.start()
        finally:
            threading.stack_size(before)
        self._wake[0].set()
        for thread in threads:
            thread.join()
        for worker in self._workers:
            worker.ctx[Ctx.YIELD] = 0

    def _live(self, mine: int) -> None:
        """Run one thread: wait for a turn, then run programs that have not started."""
        self._wait(mine)
        ctx = self._workers[mine].ctx
        while self._next < self._programs and not self._stopped:
            place, self._next = self._next, self._next + 1
            ctx[Ctx.SEGMENT] = (place + 1) * self._segments - 1
            self._call(ctx.ctypes.data, place, place + 1)
            self._stopped = self._stopped or ctx[Ctx.STATUS] != Status.DONE
            if self._next < self._programs and not self._stopped and self._rng.random() < 0.5:
                self._switch(mine)
        self._alive.remove(mine)
        if self._alive:
            self._hand_over(mine, self._following(mine, self._alive))

    def _yield(self, mine: int) -> None:
        """Handle a synchronising access of the running program: perhaps another one continues."""
        ctx = self._workers[mine].ctx
        too_often = self._patient and self._switches > PATIENT_TURNS
        if self._stopped or too_often or ctx[Ctx.SEGMENT] - ctx[Ctx.FIRST_SEGMENT] >= self._segments - 2:
            self._stopped = True
            ctx[Ctx.STEPS] = 0  # the next turn of whatever loop it is in is its last
            ctx[Ctx.SEGMENT] = ctx[Ctx.FIRST_SEGMENT]
            ctx[Ctx.STATUS] = Status.STEPS
            return
        self._spins += 1
        likely = 0.5 if self._switches < SWITCHES else RARELY
        if self._patient or self._spins >= SPINS or self._rng.random() < likely:
            self._switch(mine)

    def _switch(self, mine: int) -> None:
        others = [k for k in self._alive if k != mine]
        if others:
            self._switches, self._spins = self._switches + 1, 0
            self._hand_over(mine, self._following(mine, others))
            self._wait(mine)

    def _following(self, mine: int, others: list[int]) -> int:
        """The program to continue: the next one where all must get their turn, otherwise by the draw."""
        if not self._patient:
            return self._rng.choice(others)
        return min(others, key=lambda k: (k < mine, k))

    def _hand_over(self, mine: int, other: int) -> None:
        self._workers[other].ctx[Ctx.N_SYNCS] = self._workers[mine].ctx[Ctx.N_SYNCS]
        self._wake[other].set()

    def _wait(self, mine: int) -> None:
        self._wake[mine].wait()
        self._wake[mine].clear()
