"""The cost of grading beyond the candidate's own work.

    python benchmarks/gym_latency.py [--evals 60] [--slots N]

In one run: what forking a warm process takes, with and without huge pages; the zygote's start; evaluations one after
another (latency, and its part that is not the candidate's load and calls); evaluations side by side (throughput); and
one in a process of its own, as a ratio to importing torch and triton. Wall-clock figures want an idle machine;
processor time (``cpu``: judge, zygote and all children) does not.
"""

import itertools
import os
import statistics
import subprocess
import sys
import time
from concurrent.futures import wait
from pathlib import Path

import psutil
import torch
from rich.console import Console
from rich.table import Table

from drkernel.gym.judge.judge import evaluate
from drkernel.gym.pools.local import LocalPool
from drkernel.gym.request import EvalRequest
from drkernel.gym.session.factory import SessionFactory
from drkernel.gym.session.simulated import SimulatedSession
from drkernel.tasks.loaders import builtin_task
from stts_writer import source
from surveys import parser_of

HONEST = {name: source(f"builtin/{name}", rung=5) for name in ("level1/softmax", "level1/mish")}
"""tasks, and kernels that are right"""

FORKS = """
import os, resource
from drkernel.gym.sandbox import linux
from drkernel.gym.runner.warm_up import warm_up
warm_up(devices=False)
def cost(forks=30):
    def used():
        own, children = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
        return own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime
    start = used()
    for _ in range(forks):
        pid = os.fork()
        if pid == 0:
            os._exit(0)
        os.waitpid(pid, 0)
    return 1e3 * (used() - start) / forks
before = cost()
linux.collapse_to_huge_pages()
print(before, cost())
"""


class OwnWork:
    """Adds up the wall time that the judge waits for a candidate's load and calls."""

    def __init__(self) -> None:
        self.seconds = 0.0
        for name in ("load", "call"):
            setattr(SimulatedSession, name, self._timed(getattr(SimulatedSession, name)))

    def _timed(self, method):
        def timed(*args, **kwargs):
            result = None
            try:
                result = method(*args, **kwargs)
                return result
            finally:
                self.seconds += getattr(result, "seconds", 0.0)

        return timed


def requests(count: int, tag: str) -> list[EvalRequest]:
    """Distinct requests over the honest candidates."""
    turns = zip(range(count), itertools.cycle(HONEST.items()), strict=False)
    return [EvalRequest(task=builtin_task(name), candidate=f"{text}\n# {tag} {at}") for at, (name, text) in turns]


def one_after_another(count: int) -> dict[str, float]:
    """Latency of evaluations in an otherwise idle gym."""
    own = OwnWork()
    start = time.perf_counter()
    with SessionFactory().warm() as factory:
        started = time.perf_counter() - start
        total, rest = [], []
        for number, request in enumerate(requests(count + 6, "latency")):
            own.seconds, start = 0.0, time.perf_counter()
            verdict = evaluate(request, factory)
            seconds = time.perf_counter() - start
            assert verdict.status == "correct", verdict
            if number >= 6:  # references and oracles are cached by then
                total.append(seconds)
                rest.append(seconds - own.seconds)
    return {
        "zygote_start_s": started,
        "evaluation_median_ms": 1e3 * statistics.median(total),
        "overhead_median_ms": 1e3 * statistics.median(rest),
        "overhead_p90_ms": 1e3 * statistics.quantiles(rest, n=10)[-1],
    }


def cpu_seconds(pool: LocalPool) -> float:
    """Processor time of this process, the judges, their zygotes and nurseries, and every job that has ended."""
    names = ("pid", "zygote_pid", "nursery_pid")
    pids = {judge[name] for judge in pool.health()["judges"] for name in names}  # judges share zygotes
    each = [psutil.Process(pid).cpu_times() for pid in pids]
    return time.process_time() + sum(sum(times[:4]) for times in each)


def forks() -> dict[str, float]:
    """Processor time of one fork and the child's end, before and after gathering memory into huge pages."""
    threads = {f"{name}_NUM_THREADS": "1" for name in ("OMP", "OPENBLAS", "MKL")}
    done = subprocess.run(
        [sys.executable, "-c", FORKS], env={**os.environ, **threads}, text=True, check=True, capture_output=True
    )
    before, after = map(float, done.stdout.split())
    return {"fork_cpu_ms": before, "fork_cpu_ms_huge_pages": after}


def side_by_side(count: int, slots: int) -> dict[str, float]:
    """Throughput of a pool."""
    with LocalPool(slots).warm() as pool:
        wait([pool.submit(request) for request in requests(2 * slots + 4, "warm")])
        start, used = time.perf_counter(), cpu_seconds(pool)
        futures = [pool.submit(request) for request in requests(count, "throughput")]
        statuses = {future.result().status for future in futures}
        seconds = time.perf_counter() - start
        time.sleep(0.5)  # the last job is counted when it is reaped
        used = cpu_seconds(pool) - used
    assert statuses == {"correct"}, statuses
    return {
        "slots": slots, "evaluations_per_second": count / seconds, "cpu_ms_per_evaluation": 1e3 * used / count
    }  # fmt: skip


def cold(count: int) -> dict[str, float]:
    """A ``drkernel eval`` from nothing to its report, in turn with a Python that imports torch and triton."""
    folder = Path(__file__).parents[1] / "examples" / "softmax"
    files = [str(folder / name) for name in ("reference.py", "candidate.py")]
    commands = {
        "cold_eval": [sys.executable, "-m", "drkernel", "eval", *files],
        "imports": [sys.executable, "-c", "import torch, triton"],
    }
    took: dict[str, list[tuple[float, float]]] = {name: [] for name in commands}
    for _ in range(count):
        for name, command in commands.items():
            start, before = time.perf_counter(), os.times()
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            used = sum(os.times()[2:4]) - sum(before[2:4])
            took[name].append((time.perf_counter() - start, used))
    medians = {name: [statistics.median(column) for column in zip(*rows, strict=True)] for name, rows in took.items()}
    (wall, cpu), (wall_imports, cpu_imports) = medians["cold_eval"], medians["imports"]
    return {
        "cold_eval_s": wall, "cold_eval_cpu_s": cpu,
        "cold_eval_over_imports": wall / wall_imports, "cold_eval_cpu_over_imports": cpu / cpu_imports,
    }  # fmt: skip


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--evals", type=int, default=60)
    parser.add_argument("--slots", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    torch.set_num_threads(1)
    figures = {
        "cores": float(os.cpu_count() or 1),
        **forks(),
        **cold(5),
        **one_after_another(options.evals),
        **side_by_side(2 * options.evals, options.slots),
    }
    table = Table("figure", "value", title="what grading costs (wall clock)")
    for name, value in figures.items():
        table.add_row(name, f"{value:.2f}")
    Console().print(table)


if __name__ == "__main__":
    main()
