"""Thousands of evaluations, one in five hostile: none is lost, and nothing grows.

    python benchmarks/soak.py [--evals 5000] [--slots N] [--seed 0] [--json OUT]

Prints verdicts by status, verdicts that are not what the candidate deserves, and processes, file descriptors and memory
of judge and zygote after a tenth of the run and at its end. Exit code 1 when a verdict is lost or wrong, or something
has grown.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import time
from collections import Counter
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import asdict, dataclass

import psutil
import torch
from rich.console import Console
from rich.table import Table

from drkernel.gym.pools.local import LocalPool
from drkernel.gym.request import EvalRequest, EvalSettings
from drkernel.tasks.builtin import builtin_task
from gym_candidates import HONEST, HOSTILE

SETTINGS = EvalSettings(deadline_s=3.0, memory_bytes=1 << 30)
MAY_GROW_BYTES = 64 << 20


@dataclass(frozen=True)
class Census:
    """The resources that the judge and the zygote hold while no job runs."""

    processes: int
    descriptors: int
    zygote_descriptors: int
    memory_mib: float
    zygote_memory_mib: float
    shared_memory_files: int


def census(pool: LocalPool) -> Census:
    """Count once every job is gone but the spares."""
    seats = pool.health()["judges"]
    judges = [psutil.Process(), *(psutil.Process(seat["pid"]) for seat in seats)]
    zygotes = [psutil.Process(pid) for pid in {seat["zygote_pid"] for seat in seats}]
    waiting = 2 * sum(seat["spares"] for seat in seats) + len(zygotes)  # a runner and its device each; a nursery
    for _ in range(200):
        children = sum(len(zygote.children(recursive=True)) for zygote in zygotes)
        if children == waiting:
            break
        time.sleep(0.05)
    return Census(
        processes=children - waiting,
        descriptors=sum(judge.num_fds() for judge in judges) - 3 * len(seats),
        zygote_descriptors=sum(zygote.num_fds() for zygote in zygotes),
        memory_mib=sum(judge.memory_info().rss for judge in judges) / 2**20,
        zygote_memory_mib=sum(zygote.memory_info().rss for zygote in zygotes) / 2**20,
        shared_memory_files=len(os.listdir("/dev/shm")),
    )


def draw(number: int, rng: random.Random) -> tuple[str, EvalRequest, set[str]]:
    """The next candidate: its name, the request, and the statuses it deserves."""
    name, source = rng.choice(list(HONEST.items()))
    task, deserved, title = builtin_task(name), {"correct"}, "honest"
    if rng.random() < 0.2:
        title = rng.choice(list(HOSTILE))
        source, deserved = HOSTILE[title]
    request = EvalRequest(task=task, candidate=f"{source}\n# {number}", settings=SETTINGS)
    return title, request, deserved


def run(pool: LocalPool, evals: int, seed: int) -> tuple[Counter, Counter, list[Census]]:
    """Keep the pool full until every evaluation has its verdict."""
    rng = random.Random(seed)
    statuses: Counter = Counter()
    wrong: Counter = Counter()
    pending: dict[Future, tuple[str, set[str]]] = {}
    counted: list[Census] = []
    for number in range(evals):
        title, request, deserved = draw(number, rng)
        pending[pool.submit(request)] = (title, deserved)
        if number == evals // 10:
            _take(pending, statuses, wrong, down_to=0)
            counted.append(census(pool))
        _take(pending, statuses, wrong, down_to=2 * pool.slots)
    _take(pending, statuses, wrong, down_to=0)
    return statuses, wrong, [*counted, census(pool)]


def _take(pending: dict, statuses: Counter, wrong: Counter, down_to: int) -> None:
    while len(pending) > down_to:
        done, _ = wait(pending, return_when=FIRST_COMPLETED)
        for future in done:
            title, deserved = pending.pop(future)
            status = future.result().status
            statuses[f"{title}: {status}"] += 1
            if status not in deserved:
                wrong[f"{title}: {status}"] += 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--evals", type=int, default=5000)
    parser.add_argument("--slots", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", help="also write the figures here")
    options = parser.parse_args()
    torch.set_num_threads(1)
    start = time.perf_counter()
    with LocalPool(options.slots).warm() as pool:
        statuses, wrong, (first, last) = run(pool, options.evals, options.seed)
        health = pool.health()
    seconds = time.perf_counter() - start
    _print(statuses, wrong, first, last, seconds, options.evals)
    lost = options.evals - sum(statuses.values())
    grown = [name for name, value in asdict(last).items() if value > asdict(first)[name] + _slack(name)]
    zygotes = health["zygotes_started"]
    if options.json:
        figures = {"statuses": statuses, "wrong": wrong, "first": asdict(first), "last": asdict(last), "lost": lost,
                   "seconds": seconds, "zygotes_started": zygotes, "grown": grown}  # fmt: skip
        with open(options.json, "w") as file:
            json.dump(figures, file, indent=1)
    return 1 if lost or wrong or grown else 0


def _slack(name: str) -> float:
    return MAY_GROW_BYTES / 2**20 if name.endswith("mib") else 0


def _print(statuses: Counter, wrong: Counter, first: Census, last: Census, seconds: float, evals: int) -> None:
    console = Console()
    table = Table("candidate: verdict", "times", title=f"{evals} evaluations in {seconds:.0f} s")
    for name, count in sorted(statuses.items()):
        table.add_row(name, f"{count}" + (" [red]not deserved[/]" if name in wrong else ""))
    console.print(table)
    table = Table("held while idle", "after a tenth", "at the end")
    for name, value in asdict(first).items():
        table.add_row(name.replace("_", " "), f"{value:.0f}", f"{asdict(last)[name]:.0f}")
    console.print(table)


if __name__ == "__main__":
    sys.exit(main())
