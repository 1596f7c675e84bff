"""Kill the service at random moments of a run, again and again, and count what was lost or doubled.

    python benchmarks/serve_faults.py --jobs 500 --kills 20 --out docs/results/faults.md

The server is a real process (``drkernel serve`` with an evaluator that takes a few milliseconds, so that the run is
about the queue and not about grading), killed with SIGKILL and started again on the same store while clients go on.
A second part kills remote workers instead. Every verdict that a client got is compared with the store.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from drkernel.gym.request import EvalRequest, EvalSettings
from drkernel.serve.client import AsyncClient
from drkernel.serve.store import Store
from drkernel.task import Provenance, Task

PORT = 18765
CHILD = """
import asyncio, sys
from drkernel.serve.app import make_app
from drkernel.serve.service import Service
from drkernel.serve.store import Store
from drkernel.verdict import Verdict
import uvicorn

class Pool:
    async def evaluate(self, request):
        with open(sys.argv[3], "a") as log:
            log.write(request.key + "\\n")
        await asyncio.sleep(0.02)
        return Verdict(status="correct", task_id=request.task.id, candidate_sha256="0" * 64,
                       device=request.settings.device, baseline=request.settings.baseline)
    def health(self): return {}
    async def close(self): pass

service = Service(Store(sys.argv[1]), Pool() if int(sys.argv[4]) else None, slots=int(sys.argv[4]), lease_s=2.0)
uvicorn.run(make_app(service, grace_s=1.0), host="127.0.0.1", port=int(sys.argv[2]), log_level="critical")
"""
WORKER = """
import asyncio, sys
from drkernel.serve.client import AsyncClient
from drkernel.serve.worker import Worker
from drkernel.verdict import Verdict

class Pool:
    async def evaluate(self, request):
        await asyncio.sleep(0.05)
        return Verdict(status="correct", task_id=request.task.id, candidate_sha256="0" * 64,
                       device=request.settings.device, baseline=request.settings.baseline)

async def main():
    async with AsyncClient(sys.argv[1], retries=30) as client:
        await Worker(client, Pool(), slots=2).run()

asyncio.run(main())
"""


@dataclass
class Outcome:
    """Figures of one part."""

    name: str
    kills: int
    jobs: int
    lost: int
    doubled: int
    unequal: int
    evaluations: int
    seconds: float


def request(number: int) -> EvalRequest:
    """A request of its own."""
    reference = "class Model: ...\ndef get_inputs(): return []\ndef get_init_inputs(): return []\n"
    return EvalRequest(
        task=Task(id=f"fault/{number}", level=1, reference=reference, provenance=Provenance(source="benchmark")),
        candidate=f"class ModelNew:\n    number = {number}\n",
        settings=EvalSettings(profile=None),
    )


def start(code: str, *arguments: str) -> subprocess.Popen[bytes]:
    """A child process in a group of its own."""
    return subprocess.Popen([sys.executable, "-c", code, *arguments], start_new_session=True)


def kill(process: subprocess.Popen[bytes]) -> None:
    """SIGKILL to the whole group."""
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


async def drive(jobs: int, seconds_apart: float, rng: random.Random) -> Counter[str]:
    """Clients that submit one by one and wait; how often each job's verdict came."""
    seen: Counter[str] = Counter()
    gate = asyncio.Semaphore(32)
    async with AsyncClient(f"http://127.0.0.1:{PORT}", retries=60, timeout_s=30.0) as client:

        async def one(number: int) -> None:
            await asyncio.sleep(rng.random() * seconds_apart)
            async with gate:
                verdict = await client.evaluate(request(number))
            seen[verdict.task_id] += 1

        await asyncio.gather(*(one(number) for number in range(jobs)))
    return seen


async def part(name: str, jobs: int, kills: int, workers: int, seed: int) -> Outcome:
    """One run with kills of the server (``workers`` 0) or of remote workers."""
    rng = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        store_path, log = str(Path(folder) / "store.sqlite"), str(Path(folder) / "evaluated.log")
        arguments = (store_path, str(PORT), log, "0" if workers else "4")
        server = start(CHILD, *arguments)
        helpers = [start(WORKER, f"http://127.0.0.1:{PORT}") for _ in range(workers)]
        started = time.perf_counter()
        driving = asyncio.create_task(drive(jobs, 0.9 * kills, rng))
        done = 0
        while done < kills and not driving.done():
            await asyncio.sleep(rng.uniform(0.3, 1.5))
            if workers:
                victim = rng.randrange(workers)
                kill(helpers[victim])
                helpers[victim] = start(WORKER, f"http://127.0.0.1:{PORT}")
            else:
                kill(server)
                server = start(CHILD, *arguments)
            done += 1
        seen = await driving
        seconds = time.perf_counter() - started
        for process in (server, *helpers):
            kill(process)
        with Store(store_path) as store:
            finished = store.find(state="done", limit=10 * jobs)
            rows = Counter(job.task_id for job in finished)
            unfinished = len(store.find(state="queued", limit=10)) + len(store.find(state="leased", limit=10))
        evaluations = len(Path(log).read_text().splitlines()) if Path(log).exists() else len(finished)
    wanted = {f"fault/{number}" for number in range(jobs)}
    return Outcome(
        name,
        done,
        jobs,
        lost=len(wanted - set(seen)) + unfinished,
        doubled=sum(count - 1 for count in rows.values()) + sum(count - 1 for count in seen.values()),
        unequal=len(set(rows) ^ wanted),
        evaluations=evaluations,
        seconds=seconds,
    )


def table(outcomes: list[Outcome], command: str) -> str:
    """The figures as Markdown."""
    lines = [
        "# Faults: killed services and workers",
        "",
        f"`{command}`, {date.today().isoformat()}. SIGKILL at random moments; 32 clients go on meanwhile.",
        "",
        "| what is killed | kills | jobs | lost | reported twice | store differs | seconds |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    lines += [
        f"| {o.name} | {o.kills} | {o.jobs} | {o.lost} | {o.doubled} | {o.unequal} | {o.seconds:.0f} |"
        for o in outcomes
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Parse, run both parts, print, and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=500)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    outcomes = [
        asyncio.run(part("the server", options.jobs, options.kills, 0, options.seed)),
        asyncio.run(part("one of three remote workers", options.jobs, options.kills, 3, options.seed)),
    ]
    command = f"python benchmarks/serve_faults.py --jobs {options.jobs} --kills {options.kills} --seed {options.seed}"
    text = table(outcomes, command)
    print(text)
    if options.out is not None:
        options.out.write_text(text, encoding="utf-8")
    raise SystemExit(any(o.lost or o.doubled or o.unequal for o in outcomes))


if __name__ == "__main__":
    main()
