"""Hostile calls of every operator that the simulated device allows, with guard pages around every storage.

    python benchmarks/fuzz_device.py --calls 1000000 --seed 0 [--first N]

Child processes make the calls (``tests/kit/hostile_calls.py``: call N of seed S is always the same) on a device
engine whose storages lie between inaccessible pages, with a pattern in the slack that is looked at when a storage goes.
They are forked from a process that has imported everything and made no call. A signal that ends a child, or a damaged
pattern, is a finding: it is printed with its call, and the campaign goes on behind it. A call that takes more than 5
seconds of processor time, or a minute, is stopped and listed; one that wants too much memory is counted.

``--first N`` begins at call N, where another campaign was ended. ``--one N`` makes call N alone, in this process, and
says what it is. Exit code 1 when there were findings. Needs no GPU; x86-64 Linux.
"""

import gc
import json
import mmap
import os
import resource
import signal
import struct
import sys
import time
from collections import Counter
from pathlib import Path

import torch

from guard_pages import NO_MEMORY, GuardedAllocator, GuardsUnavailable, guard_storages

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "kit"))

import hostile_calls
from drkernel.sim.gpu.shapes import prepare_shapes
from surveys import parser_of

ADDRESS_SPACE = 6 << 30
SHARE = 1000
"""calls of one child: fresh processes keep a slow leak, or one call's late effect, from the next calls"""
_PLACE = struct.Struct("<q")
NAME_BYTES = 4000


def ready() -> GuardedAllocator:
    """All that the children need and that takes time: half of a child's share of calls, were it done in each."""
    torch.set_num_threads(1)
    guards = guard_storages()
    prepare_shapes()
    for name in hostile_calls.overloads():
        hostile_calls.templates_of(name)
    hostile_calls.new_engine()
    gc.collect()
    gc.freeze()
    return guards


def child(guards: GuardedAllocator, seed: int, first: int, last: int, page: mmap.mmap) -> None:
    """Make calls [first, last); where it is stands in ``page``, outcomes go to its end."""
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # PyTorch warns of thousands of odd arguments
    engine = hostile_calls.new_engine()
    outcomes: Counter[str] = Counter()
    for number in range(first, last):
        call = hostile_calls.HostileCall(seed, number)
        _note(page, number, call.name, outcomes)
        signal.setitimer(signal.ITIMER_PROF, PATIENCE)
        signal.setitimer(signal.ITIMER_REAL, PATIENCE_WAITING)
        outcomes[call.run(engine, lambda ready: _note(page, number, str(ready), outcomes))] += 1  # noqa: B023
        damage = guards.check()
        if damage:
            _note(page, number, f"{call}: {'; '.join(damage)}", outcomes)
            os._exit(DAMAGE)
        engine.accounts.reset()
        if number % 100 == 0:
            engine = hostile_calls.new_engine()
    _note(page, last, "", outcomes)


PATIENCE, PATIENCE_WAITING = 5.0, 60.0
"""seconds of one call: of processor time, and in all"""
DAMAGE = 98


def _note(page: mmap.mmap, number: int, text: str, outcomes: Counter[str]) -> None:
    data = json.dumps({"call": text[:NAME_BYTES], "outcomes": outcomes}).encode()
    page[: _PLACE.size] = _PLACE.pack(number)
    page[8:16] = _PLACE.pack(len(data))
    page[16 : 16 + len(data)] = data


def _read(page: mmap.mmap) -> tuple[int, str, Counter[str]]:
    number, size = _PLACE.unpack(page[:8])[0], _PLACE.unpack(page[8:16])[0]
    data = json.loads(page[16 : 16 + size])
    return number, data["call"], Counter(data["outcomes"])


class Campaign:
    """Where a campaign is, and what it found."""

    def __init__(self, seed: int, first: int):
        self.seed, self.done = seed, first
        self.outcomes: Counter[str] = Counter()
        self.findings = 0

    def run(self, calls: int) -> None:
        """Up to call ``calls``."""
        page = mmap.mmap(-1, 64 << 10)
        said = time.monotonic()
        guards = ready()
        while self.done < calls:
            first, last = self.done, min(calls, (self.done // SHARE + 1) * SHARE)
            _note(page, first, "", Counter())
            pid = os.fork()
            if pid == 0:
                status = 1
                try:
                    child(guards, self.seed, first, last, page)
                    status = 0
                finally:
                    os._exit(status)
            self._ended(os.waitpid(pid, 0)[1], page)
            if time.monotonic() - said > 30:
                said = time.monotonic()
                print(f"{self.done} calls, {self.findings} findings", flush=True)

    def _ended(self, status: int, page: mmap.mmap) -> None:
        number, call, outcomes = _read(page)
        self.outcomes += outcomes
        self.done = number
        if status == 0:
            return
        self.done = number + 1
        how = signal.Signals(os.WTERMSIG(status)).name if os.WIFSIGNALED(status) else f"exit {os.WEXITSTATUS(status)}"
        if how == f"exit {NO_MEMORY}":
            self.outcomes["wanted too much memory"] += 1
        elif how in ("SIGPROF", "SIGALRM"):
            self.outcomes["took too long"] += 1
            print(f"slow: seed {self.seed} call {number}: {call}", flush=True)
        else:
            self.findings += 1
            print(f"FINDING {how}: seed {self.seed} call {number}: {call}", flush=True)


def main() -> int:
    """Run, print, 1 when there were findings."""
    parser = parser_of(__doc__)
    parser.add_argument("--calls", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="call to begin at")
    parser.add_argument("--one", type=int, help="make this call alone, in this process")
    options = parser.parse_args()
    if options.one is not None:
        guards = guard_storages()
        call = hostile_calls.HostileCall(options.seed, options.one)
        outcome = call.run(hostile_calls.new_engine(), lambda ready: print(ready, flush=True))
        print(f"{call.name}: {outcome} {'; '.join(guards.check())}")
        return 0
    start = time.monotonic()
    campaign = Campaign(options.seed, options.first)
    try:
        campaign.run(options.calls)
    except GuardsUnavailable as error:
        raise SystemExit(str(error)) from error
    seconds = time.monotonic() - start
    print(f"{len(hostile_calls.overloads())} overloads; outcomes:")
    for outcome, count in campaign.outcomes.most_common():
        print(f"  {count:8d} {outcome}")
    made = campaign.done - options.first
    print(f"seed {options.seed}: {made} calls in {seconds:.0f} s, {campaign.findings} findings")
    return 1 if campaign.findings else 0


if __name__ == "__main__":
    raise SystemExit(main())
