"""``drkernel worker URL``: lend this machine to a service."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from typing import Annotated

import typer

from drkernel.cli.pools import MEMORY_HELP, to_bytes

app = typer.Typer(add_completion=False, rich_markup_mode="rich")

HELP = """Join a service: lease jobs, evaluate them on this machine, report the verdicts.

The service's token is read from the environment variable DRKERNEL_TOKEN. SIGTERM or Ctrl-C finishes what runs and
leaves. Exit codes: 0 left, 1 the service refused or could not be reached, 2 wrong usage.

Examples:

  DRKERNEL_TOKEN=... drkernel worker http://10.0.0.5:8765 --slots 8 --takes sim

  CUDA_VISIBLE_DEVICES=3 drkernel worker http://10.0.0.5:8765 --slots 1 --takes cuda --name node7-gpu3
"""


@app.command(help=HELP)
def worker(
    url: Annotated[str, typer.Argument(help="address of the service")],
    slots: Annotated[int | None, typer.Option(min=1, help="jobs at once; default: one a core")] = None,
    name: Annotated[str | None, typer.Option(help="name under which the service shows this worker")] = None,
    takes: Annotated[
        str | None, typer.Option(help="only jobs for this kind of device: sim or cuda (default: what is here)")
    ] = None,
    memory_gib: Annotated[float | None, typer.Option(min=0.1, help=MEMORY_HELP)] = None,
) -> None:
    """Parse, work."""
    from drkernel.serve.client import ServiceError

    if takes not in (None, "sim", "cuda"):
        print(f"drkernel worker: --takes {takes}: there are sim and cuda", file=sys.stderr)
        raise SystemExit(2)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    try:
        done = asyncio.run(_work(url, slots or os.cpu_count() or 1, name, takes, to_bytes(memory_gib)))
    except ServiceError as error:
        print(f"drkernel worker: {error}", file=sys.stderr)
        raise SystemExit(1) from None
    print(f"{done} evaluations done")


async def _work(url: str, slots: int, name: str | None, takes: str | None, memory: int | None) -> int:
    from drkernel.gym.device import kinds_here
    from drkernel.gym.pools.local import LocalPool
    from drkernel.serve.client import AsyncClient
    from drkernel.serve.worker import Worker

    pool = LocalPool(slots=slots, attempts=1, memory_bytes=memory)  # the service counts the attempts
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
