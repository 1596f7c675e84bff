"""``drkernel serve``: the grading service, on one machine or with many workers that join it."""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from drkernel.cli.pools import MEMORY_HELP, TOTAL_HELP, to_bytes

if TYPE_CHECKING:
    from drkernel.serve.ray_workers import Lending

app = typer.Typer(add_completion=False, rich_markup_mode="rich")

HELP = """Serve grading over HTTP; every accepted job is stored durably before it is acknowledged.

Listens on this machine only. Any other address requires a token, in the environment variable DRKERNEL_TOKEN or in a
file (--token-file). The address that it prints shows a live page in a browser.

SIGTERM drains: no new jobs are accepted, running ones may finish. Exit codes: 0 stopped, 2 wrong usage.

Examples:

  drkernel serve

  DRKERNEL_TOKEN=... drkernel serve --host 0.0.0.0 --port 8766 --slots 16

  DRKERNEL_TOKEN=... drkernel serve --host 0.0.0.0 --ray auto

  drkernel train recipes/quickstart.yaml --pool http://127.0.0.1:8765
"""


@app.command(help=HELP)
def serve(
    host: Annotated[str, typer.Option(help="address to listen on")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="port; 0 takes a free one")] = 8765,
    store: Annotated[Path, typer.Option(help="the store: a SQLite file")] = Path("drkernel-store.sqlite"),
    device: Annotated[str, typer.Option(help="device of requests that name none (KernelGYM's clients)")] = "sim:h200",
    slots: Annotated[int | None, typer.Option(min=0, help="evaluations at once here; 0: remote workers only")] = None,
    ray: Annotated[
        str | None,
        typer.Option(help="have a Ray cluster work too: local, auto or its address; --slots are then CPU slots a node"),
    ] = None,
    token_file: Annotated[Path | None, typer.Option(help="file that holds the bearer token")] = None,
    max_queue: Annotated[int, typer.Option(min=1, help="waiting jobs from which on submissions are refused")] = 100_000,
    max_body_mb: Annotated[int, typer.Option(min=1, help="largest request in MiB")] = 64,
    rate: Annotated[float, typer.Option(min=0, help="requests a second and client address; 0: unlimited")] = 0.0,
    lease: Annotated[
        float, typer.Option(min=1, help="seconds without a heartbeat after which a job is taken back")
    ] = 60.0,
    memory_gib: Annotated[float | None, typer.Option(min=0.1, help=MEMORY_HELP)] = None,
    total_memory_gib: Annotated[float | None, typer.Option(min=0.1, help=TOTAL_HELP)] = None,
    grace: Annotated[float, typer.Option(min=0, help="seconds that running jobs get at shutdown")] = 60.0,
) -> None:
    """Parse, build, serve."""
    from drkernel.config import ConfigError
    from drkernel.gym.device import parse_device
    from drkernel.serve.guard import GuardError, check_binding
    from drkernel.serve.jobs import StoreError
    from drkernel.serve.ray_workers import Lending, RayMissing

    token = _token(token_file)
    try:
        parse_device(device)
        check_binding(host, token)
        limits = (max_queue, max_body_mb << 20, rate, grace)
        here = 0 if ray is not None else (os.cpu_count() or 1) if slots is None else slots
        memory = to_bytes(memory_gib), to_bytes(total_memory_gib)
        application = _application(store, device, here, lease, token, limits, memory)
        logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
        _run(
            application, host, port, ray, Lending("", token, slots=slots, memory_bytes=memory[0], total_bytes=memory[1])
        )
    except (ConfigError, GuardError, StoreError, RayMissing) as error:
        _usage(str(error))


def _application(
    store: Path,
    device: str,
    slots: int,
    lease: float,
    token: str | None,
    limits: tuple[int, int, float, float],
    memory: tuple[int | None, int | None],
) -> Any:
    from drkernel.gym.device import kinds_here
    from drkernel.gym.pools.local import LocalPool
    from drkernel.report.verdict_html import page
    from drkernel.serve.app import make_app
    from drkernel.serve.service import Service
    from drkernel.serve.store import Store

    opened = Store(store)
    service = Service(opened, None, lease_s=lease)
    service.claim()  # before anything is started that would have to be stopped
    if slots:
        # the service counts the attempts
        pool = LocalPool(slots=slots, attempts=1, memory_bytes=memory[0], total_bytes=memory[1])
        service.use(pool, slots, kinds_here())
    return make_app(
        service,
        token=token,
        max_queue=limits[0],
        max_body=limits[1],
        rate=limits[2],
        grace_s=limits[3],
        device=device,
        verdict_page=lambda request, verdict, before, after: page(
            verdict,
            task=request.task,
            candidate=request.candidate,
            profile=request.settings.profile,
            before=before,
            after=after,
        ),
    )


def _run(application: Any, host: str, port: int, ray: str | None, lending: Lending) -> None:
    from drkernel.serve.listen import bind, many_connections, server
    from drkernel.serve.ray_workers import RayWorkers

    try:
        listener = bind(host, port)
    except OSError as error:
        _usage(f"cannot listen on {host}:{port}: {error.strerror}; choose another --port")
    many_connections()
    port = listener.getsockname()[1]
    workers = RayWorkers.beside(ray, host, port, lending) if ray is not None else None
    shown = f"[{host}]" if ":" in host else host
    print(f"drkernel serve: http://{shown}:{port}", flush=True)
    try:
        server(application).run(sockets=[listener])
    finally:
        if workers is not None:
            workers.close()


def _token(token_file: Path | None) -> str | None:
    if token_file is not None:
        try:
            return token_file.read_text(encoding="utf-8").strip() or None
        except OSError as error:
            _usage(f"cannot read the token file {token_file}: {error.strerror}")
        except UnicodeDecodeError:
            _usage(f"the token file {token_file} is not a text file")
    return os.environ.get("DRKERNEL_TOKEN") or None


def _usage(message: str) -> NoReturn:
    print(f"drkernel serve: {message}", file=sys.stderr)
    raise SystemExit(2)
