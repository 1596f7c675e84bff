"""``drkernel worker URL``: run evaluations for a service on this machine, or on a Ray cluster."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import threading
from typing import Annotated

import typer

from drkernel.cli.pools import MEMORY_HELP, TOTAL_HELP, check_pool, to_bytes
from drkernel.config import ConfigError

app = typer.Typer(add_completion=False, rich_markup_mode="rich")

HELP = """Join a service: lease jobs, evaluate them on this machine, report the verdicts.

With --ray it starts such a worker for every GPU and for the CPU slots of every node of a Ray cluster, follows nodes
that join and leave, and stays until it is stopped.

The service's token is read from the environment variable DRKERNEL_TOKEN. SIGTERM or Ctrl-C finishes running jobs and
leaves. Exit codes: 0 left, 1 the service refused or could not be reached, 2 wrong usage.

Examples:

  DRKERNEL_TOKEN=... drkernel worker http://10.0.0.5:8765 --slots 8 --takes sim

  CUDA_VISIBLE_DEVICES=3 drkernel worker http://10.0.0.5:8765 --slots 1 --takes cuda --name node7-gpu3

  DRKERNEL_TOKEN=... drkernel worker http://10.0.0.5:8765 --ray auto
"""

LEAVING_S = 600.0
"""seconds that evaluations on a Ray cluster get when the command is stopped"""
Memory = tuple[int | None, int | None]
"""bytes that one evaluation may take, and all of them together; None for the defaults"""


@app.command(help=HELP)
def worker(
    url: Annotated[str, typer.Argument(help="address of the service")],
    slots: Annotated[int | None, typer.Option(min=1, help="jobs at once; default: one a core")] = None,
    ray: Annotated[
        str | None,
        typer.Option(help="lend a Ray cluster: local, auto or its address; --slots are then CPU slots a node"),
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="name under which the service shows this worker; with --ray, how names begin")
    ] = None,
    takes: Annotated[
        str | None, typer.Option(help="only jobs for this kind of device: sim or cuda (default: what is here)")
    ] = None,
    memory_gib: Annotated[float | None, typer.Option(min=0.1, help=MEMORY_HELP)] = None,
    total_memory_gib: Annotated[float | None, typer.Option(min=0.1, help=TOTAL_HELP)] = None,
) -> None:
    """Parse, work."""
    from drkernel.serve.client import ServiceError

    if takes not in (None, "sim", "cuda"):
        print(f"drkernel worker: --takes {takes}: there are sim and cuda", file=sys.stderr)
        raise SystemExit(2)
    try:
        check_pool(url)
    except ConfigError as error:
        print(f"drkernel worker: {error}", file=sys.stderr)
        raise SystemExit(2) from None
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    memory = to_bytes(memory_gib), to_bytes(total_memory_gib)
    if ray is not None:
        _lend_cluster(ray, url, slots, name, takes, memory)
        return
    try:
        done = asyncio.run(_work(url, slots or os.cpu_count() or 1, name, takes, memory))
    except ServiceError as error:
        print(f"drkernel worker: {error}", file=sys.stderr)
        raise SystemExit(1) from None
    print(f"{done} evaluations done")


def _lend_cluster(ray: str, url: str, slots: int | None, name: str | None, takes: str | None, memory: Memory) -> None:
    from drkernel.serve.ray_workers import Lending, RayMissing, RayWorkers

    token = os.environ.get("DRKERNEL_TOKEN")
    lending = Lending(url, token, name or "ray", slots, memory_bytes=memory[0], total_bytes=memory[1])
    stop = threading.Event()
    try:
        workers = RayWorkers(ray, lending, kinds=(takes,) if takes else ("sim", "cuda"))
    except RayMissing as error:
        print(f"drkernel worker: {error}", file=sys.stderr)
        raise SystemExit(2) from None
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    print(f"drkernel worker: the Ray cluster at {ray!r} works for {url}", flush=True)
    stop.wait()
    workers.close(LEAVING_S)


async def _work(url: str, slots: int, name: str | None, takes: str | None, memory: Memory) -> int:
    from drkernel.gym.device import kinds_here
    from drkernel.gym.pools.local import LocalPool
    from drkernel.serve.client import AsyncClient
    from drkernel.serve.worker import Worker

    # the service counts the attempts
    pool = LocalPool(slots=slots, attempts=1, memory_bytes=memory[0], total_bytes=memory[1])
    async with AsyncClient(url, name=name) as client:
        joined = Worker(client, pool, slots=slots, name=name, kinds=[takes] if takes else kinds_here())
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, joined.stop)
        print(f"drkernel worker {joined.name}: {slots} slots for {url}", flush=True)
        try:
            await joined.run()
        finally:
            await pool.close()
    return joined.done
