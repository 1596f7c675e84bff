"""The cost of the service: HTTP overhead over the bare pool, cached answers a second, and many clients at once.

    python benchmarks/serve_load.py

One run, one machine. The evaluator sleeps for a fixed time, so that the difference between asking it directly and
asking the service is the service alone. The figures are medians and rates of this run.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from drkernel.serve.client import AsyncClient
from drkernel.serve.store import Store
from drkernel.verdict import Verdict
from serve_fault_kit import request, start
from surveys import parser_of

PORT = 18766
WORK_S = 0.02
CHILD = """
import asyncio, sys, uvicorn
from drkernel.serve.app import make_app
from drkernel.serve.service import Service
from drkernel.serve.store import Store
from drkernel.verdict import Verdict

class Pool:
    async def evaluate(self, request):
        await asyncio.sleep(float(sys.argv[3]))
        return Verdict(status="correct", task_id=request.task.id, candidate_sha256="0" * 64,
                       device=request.settings.device, baseline=request.settings.baseline)
    def health(self): return {}
    async def close(self): pass

uvicorn.run(make_app(Service(Store(sys.argv[1]), Pool(), slots=32)), host="127.0.0.1", port=int(sys.argv[2]),
            log_level="critical", access_log=False)
"""


async def bare(count: int) -> float:
    """Median seconds of the evaluator asked directly."""
    times = []
    for number in range(count):
        begun = time.perf_counter()
        await asyncio.sleep(WORK_S)
        asked = request(number)
        Verdict(
            status="correct", task_id=asked.task.id, candidate_sha256="0" * 64, device=asked.settings.device,
            baseline=asked.settings.baseline,
        )  # fmt: skip
        times.append(time.perf_counter() - begun)
    return statistics.median(times)


async def served(client: AsyncClient, count: int) -> float:
    """Median seconds of the same through the service, one after another."""
    times = []
    for number in range(count):
        asked = request(number)
        begun = time.perf_counter()
        await client.evaluate(asked)
        times.append(time.perf_counter() - begun)
    return statistics.median(times)


async def cached(client: AsyncClient, count: int) -> float:
    """Answers a second of requests that have a verdict, 16 at a time."""
    gate = asyncio.Semaphore(16)

    async def one(number: int) -> None:
        async with gate:
            await client.evaluate(request(number % 50))

    begun = time.perf_counter()
    await asyncio.gather(*(one(number) for number in range(count)))
    return count / (time.perf_counter() - begun)


async def crowd(clients: int, jobs: int) -> tuple[float, int]:
    """Jobs a second of many clients, and how many answers were lost."""

    async def one(index: int) -> int:
        async with AsyncClient(f"http://127.0.0.1:{PORT}", name=f"client-{index}") as client:
            numbers = range(10_000 + index, 10_000 + jobs, clients)
            verdicts = await asyncio.gather(*(client.evaluate(request(number)) for number in numbers))
            return sum(verdict.status == "correct" for verdict in verdicts)

    begun = time.perf_counter()
    good = sum(await asyncio.gather(*(one(index) for index in range(clients))))
    return jobs / (time.perf_counter() - begun), jobs - good


async def measure(jobs: int) -> dict[str, Any]:
    """All figures."""
    async with AsyncClient(f"http://127.0.0.1:{PORT}", retries=40) as client:
        await client.call("GET", "/health")
        direct, through = await bare(100), await served(client, 100)
        rate = await cached(client, 2000)
    speed, lost = await crowd(32, jobs)
    return {
        "overhead_ms": (through - direct) * 1e3,
        "cached_per_second": rate,
        "crowd_jobs": jobs,
        "crowd_per_second": speed,
        "crowd_ceiling_per_second": 32 / WORK_S,
        "crowd_lost": lost,
    }


def main() -> None:
    """Start a server, measure, print."""
    parser = parser_of(__doc__)
    parser.add_argument("--jobs", type=int, default=2000)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "store.sqlite"
        server: subprocess.Popen[bytes] = start(CHILD, str(path), str(PORT), str(WORK_S))
        try:
            figures = asyncio.run(measure(options.jobs))
        finally:
            server.terminate()
            server.wait(20)
        with Store(path) as store:
            figures["stored"] = store.counts()["state"].get("done", 0)
    if options.json:
        print(json.dumps(figures))
    else:
        print(f"HTTP overhead over the bare pool   {figures['overhead_ms']:8.2f} ms median")
        print(f"cached answers                     {figures['cached_per_second']:8.0f} a second")
        speed, ceiling = figures["crowd_per_second"], figures["crowd_ceiling_per_second"]
        print(f"{options.jobs} jobs of 32 clients            {speed:8.0f} a second (evaluator's ceiling {ceiling:.0f})")
        print(f"lost                               {figures['crowd_lost']:8d}")
    sys.exit(bool(figures["crowd_lost"]))


if __name__ == "__main__":
    main()
