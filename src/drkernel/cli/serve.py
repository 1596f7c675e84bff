"""``drkernel serve``, ``worker``, ``store`` and ``mcp``: the grading service, its workers, what it has stored, and the
tools for coding agents.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
import os
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from drkernel.base.files import replacing
from drkernel.cli.options import Fields, Graders, check_address, command_line, spread
from drkernel.config import ConfigError
from drkernel.serve.protocol import StoreError
from drkernel.serve.service import Service, ServiceTerms
from drkernel.verdict import Status

if TYPE_CHECKING:
    from drkernel.agents import ToolLimits
    from drkernel.serve.worker import Lending

serve_app = command_line()

SERVE_HELP = """Serve grading over HTTP; every accepted job is stored durably before it is acknowledged.

Listens on this machine only. Any other address requires a token, in the environment variable DRKERNEL_TOKEN or in a
file (--token-file). The address that it prints shows a live page in a browser.

SIGTERM drains: no new jobs are accepted, running ones may finish. Exit codes: 0 stopped, 2 wrong usage.

Examples:

  drkernel serve

  DRKERNEL_TOKEN=... drkernel serve --host 0.0.0.0 --port 8766 --slots 16

  DRKERNEL_TOKEN=... drkernel serve --host 0.0.0.0 --ray auto

  drkernel train recipes/quickstart.yaml --pool http://127.0.0.1:8765
"""


@serve_app.command(help=SERVE_HELP)
@spread
def serve(
    host: Annotated[str, typer.Option(help="address to listen on")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="port; 0 takes a free one")] = 8765,
    store: Annotated[Path, typer.Option(help="the store: a SQLite file")] = Path("drkernel-store.sqlite"),
    slots: Annotated[int | None, typer.Option(min=0, help="evaluations at once here; 0: remote workers only")] = None,
    ray: Annotated[
        str | None,
        typer.Option(help="have a Ray cluster work too: local, auto or its address; --slots are then CPU slots a node"),
    ] = None,
    token_file: Annotated[Path | None, typer.Option(help="file that holds the bearer token")] = None,
    terms: Annotated[
        ServiceTerms, Fields("device", "max_queue", "max_body_mb", "rate", lease="lease_s", grace="grace_s")
    ] = ServiceTerms(),
    graders: Annotated[Graders, Fields("memory_gib", "total_memory_gib")] = Graders(),
    access_log: Annotated[bool, typer.Option(help="log requests, too: client, path, status, seconds")] = True,
) -> None:
    """Parse, build, serve."""
    from drkernel.serve.guard import check_binding
    from drkernel.serve.worker import Lending

    token = _token(token_file)
    check_binding(host, token)
    here = 0 if ray is not None else (os.cpu_count() or 1) if slots is None else slots
    try:
        application = _application(store, terms, graders, here, token)
        logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
        logging.getLogger("drkernel.access").setLevel(logging.INFO if access_log else logging.WARNING)
        _run(application, host, port, ray, Lending("", token, slots=slots, **graders.memory))
    except StoreError as error:
        raise ConfigError(str(error)) from None


def _application(store: Path, terms: ServiceTerms, graders: Graders, slots: int, token: str | None) -> Any:
    from drkernel.gym.device import kinds_here
    from drkernel.report.verdict import page
    from drkernel.serve.app import make_app
    from drkernel.serve.store import Store

    service = Service(Store(store), None, terms=terms)
    service.claim()  # before anything is started that would have to be stopped
    if slots:
        # the service counts the attempts
        pool = graders.here(slots, attempts=1)
        service.use(pool, slots, kinds_here())
    return make_app(service, token=token, verdict_page=page)


def _run(application: Any, host: str, port: int, ray: str | None, lending: Lending) -> None:
    from drkernel.serve.guard import bind, many_connections, server
    from drkernel.serve.worker import RayWorkers

    listener = bind(host, port)
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
        except UnicodeDecodeError:
            raise ConfigError(f"the token file {token_file} is not a text file") from None
    return os.environ.get("DRKERNEL_TOKEN") or None


# ---- ``drkernel worker URL``: run evaluations for a service on this machine, or on a Ray cluster


worker_app = command_line()

WORKER_HELP = """Join a service: lease jobs, evaluate them on this machine, report the verdicts.

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


@worker_app.command(help=WORKER_HELP)
@spread
def worker(
    url: Annotated[str, typer.Argument(help="address of the service")],
    graders: Annotated[Graders, Fields("slots", "memory_gib", "total_memory_gib")] = Graders(),
    ray: Annotated[
        str | None,
        typer.Option(help="lend a Ray cluster: local, auto or its address; --slots are then CPU slots a node"),
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="name under which the service shows this worker; with --ray, how names begin")
    ] = None,
    takes: Annotated[
        Literal["sim", "cuda"] | None,
        typer.Option(help="only jobs for this kind of device (default: what is here)"),
    ] = None,
) -> None:
    """Parse, work."""
    from drkernel.serve.client import ServiceError
    from drkernel.serve.worker import Lending

    check_address(url)
    lending = Lending(url, os.environ.get("DRKERNEL_TOKEN"), name or "ray", graders.slots, **graders.memory)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    logging.getLogger("httpx").setLevel(logging.WARNING)  # or there is a line for every heartbeat
    if ray is not None:
        _lend_cluster(ray, lending, takes)
        return
    try:
        done = asyncio.run(_work(lending, name, takes))
    except ServiceError as error:
        print(f"drkernel worker: {error}", file=sys.stderr)
        raise SystemExit(1) from None
    print(f"{done} evaluations done")


def _lend_cluster(ray: str, lending: Lending, takes: str | None) -> None:
    from drkernel.serve.worker import RayWorkers

    stop = threading.Event()
    workers = RayWorkers(ray, lending, kinds=(takes,) if takes else ("sim", "cuda"))
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    print(f"drkernel worker: the Ray cluster at {ray!r} works for {lending.url}", flush=True)
    stop.wait()
    workers.close(LEAVING_S)


async def _work(lending: Lending, name: str | None, takes: str | None) -> int:
    from drkernel.gym.device import kinds_here

    slots = lending.slots or os.cpu_count() or 1
    async with lending.worker(name, slots, [takes] if takes else kinds_here()) as joined:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, joined.stop)
        print(f"drkernel worker {joined.name}: {slots} slots for {lending.url}", flush=True)
        await joined.run()
    return joined.done


# ---- ``drkernel store``: show, export or prune the contents of a service's store


store_app = command_line(help="Look into, export or prune a service's store.")

StoreFile = Annotated[Path, typer.Argument(help="the SQLite file of 'drkernel serve'", exists=True, dir_okay=False)]


@store_app.command()
def show(store: StoreFile, as_json: Annotated[bool, typer.Option("--json")] = False) -> None:
    """Counts by state and status."""
    with _open(store) as opened:
        counts = opened.counts()
    if as_json:
        print(json.dumps(counts))
        return
    for what, values in counts.items():
        print(f"{what + ':':<8}" + (", ".join(f"{k} {v}" for k, v in sorted(values.items())) or "none"))


@store_app.command()
@spread
def export(
    store: StoreFile,
    out: Annotated[Path, typer.Argument(help="a .jsonl or .parquet file")],
    status: Annotated[Status | None, typer.Option(help="only verdicts of this status")] = None,
    task: Annotated[str | None, typer.Option(help="only tasks whose id contains this")] = None,
) -> None:
    """Write jobs with request and verdict, oldest first.

    Example: drkernel store export drkernel-store.sqlite verdicts.parquet --status correct
    """
    if out.suffix not in (".jsonl", ".parquet"):
        raise ConfigError(f"{out}: the name must end in .jsonl or .parquet")
    with _open(store) as opened, replacing(out) as temporary:
        count = _write(temporary, _rows(opened, status, task), parquet=out.suffix == ".parquet")
    print(f"{out}: {count} jobs")


@store_app.command()
def prune(
    store: StoreFile, days: Annotated[float, typer.Option(min=0, help="delete finished jobs older than this")]
) -> None:
    """Delete old finished and cancelled jobs."""
    with _open(store) as opened:
        print(f"{opened.prune(days * 86400)} jobs deleted")


def _rows(opened: Any, status: str | None, task: str | None) -> Iterator[dict[str, Any]]:
    """Yield finished jobs in the order of finishing, in batches, because a store may be larger than memory."""
    last = 0
    while jobs := opened.finished_after(last):
        last = jobs[-1].sequence
        for job in jobs:
            if status not in (None, job.status) or (task or "") not in job.task_id:
                continue
            request, verdict = opened.request(job.id), opened.verdict(job.id)
            if request is None or verdict is None:  # pruned since
                continue
            yield {
                "id": job.id, "task_id": job.task_id, "device": job.device, "client": job.client,
                "submitted": job.submitted, "finished": job.finished, "status": job.status,
                "speedup": verdict.speedup.value if verdict.speedup else None, "coverage": verdict.coverage,
                "candidate": request.candidate, "reference": request.task.reference,
                "request": request.model_dump_json(), "verdict": verdict.model_dump_json(),
            }  # fmt: skip


def _write(path: Path, rows: Iterator[dict[str, Any]], parquet: bool) -> int:
    """Write the rows as a file; return how many."""
    count = 0
    if not parquet:
        with path.open("w", encoding="utf-8") as file:
            for count, row in enumerate(rows, 1):  # noqa: B007
                file.write(json.dumps(row) + "\n")
        return count
    import pyarrow
    import pyarrow.parquet

    numbers = {"submitted", "finished", "speedup", "coverage"}
    names = (
        "id", "task_id", "device", "client", "submitted", "finished", "status", "speedup", "coverage", "candidate",
        "reference", "request", "verdict",
    )  # fmt: skip
    schema = pyarrow.schema([(name, pyarrow.float64() if name in numbers else pyarrow.string()) for name in names])
    with pyarrow.parquet.ParquetWriter(path, schema) as writer:
        while portion := list(itertools.islice(rows, 1000)):
            writer.write_table(pyarrow.Table.from_pylist(portion, schema=schema))
            count += len(portion)
    return count


def _open(path: Path) -> Any:
    from drkernel.serve.store import Store

    try:
        return Store(path)
    except StoreError as error:
        raise ConfigError(str(error)) from None


# ---- ``drkernel mcp``: tools for coding agents, over the Model Context Protocol


mcp_app = command_line()

MCP_HELP = """Offer drkernel's tools to coding agents over the Model Context Protocol.

The tools are evaluate, simulate, tasks, gpus and explain. An agent starts this command itself and speaks over standard
input and output; with --http it is a server at http://HOST:PORT/mcp. Candidates and scripts run in the sandbox, each
with a deadline. References run with your rights, as in 'drkernel eval'; --builtin-only refuses them.

Over standard input and output, files under the working folder may be named in place of sources; --folder names another
one. Over HTTP any address but this machine's requires a token, in the environment variable DRKERNEL_TOKEN.

Exit codes: 0 the agent has left or the server was stopped, 2 wrong usage.

Examples:

  drkernel mcp

  drkernel mcp --evaluations 50 --deadline 30

  DRKERNEL_TOKEN=... drkernel mcp --http --host 0.0.0.0 --port 8770 --builtin-only
"""


@mcp_app.command(help=MCP_HELP)
@spread
def mcp(
    http: Annotated[bool, typer.Option("--http", help="streamable HTTP instead of standard input and output")] = False,
    host: Annotated[str, typer.Option(help="address to listen on, with --http")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="port, with --http; 0 takes a free one")] = 8770,
    evaluations: Annotated[
        int | None, typer.Option(min=1, help="evaluations and simulations in all; default: unlimited")
    ] = None,
    deadline: Annotated[float, typer.Option(min=0.1, help="seconds that one candidate or script may take")] = 60.0,
    folder: Annotated[Path | None, typer.Option(help="files under it may be named in place of sources")] = None,
    graders: Annotated[Graders, Fields("pool", "memory_gib", slots=("slots", 1))] = Graders(),
    builtin_only: Annotated[bool, typer.Option("--builtin-only", help="grade tasks of the suite only")] = False,
) -> None:
    """Parse, serve."""
    from drkernel.agents import ToolLimits

    if folder is not None and not folder.is_dir():
        raise ConfigError(f"--folder {folder} is not a folder")
    files = folder if folder is not None or http else Path.cwd()
    limits = ToolLimits(
        evaluations=evaluations, deadline_s=deadline, folder=files, references="builtin" if builtin_only else "any"
    )
    if http:
        _serve_http(host, port, graders, limits)
    else:
        asyncio.run(_serve_stdio(graders, limits))


async def _serve_stdio(graders: Graders, limits: ToolLimits) -> None:
    from drkernel.agents import Toolbox, make_server

    async with graders.grading() as pool:
        await make_server(Toolbox(pool, limits)).run_stdio_async()


def _serve_http(host: str, port: int, graders: Graders, limits: ToolLimits) -> None:
    from drkernel.agents import Toolbox, http_application, make_server
    from drkernel.serve.guard import bind, check_binding, server

    token = os.environ.get("DRKERNEL_TOKEN") or None
    check_binding(host, token)
    listener = bind(host, port)
    pool = graders.open()
    shown = f"[{host}]" if ":" in host else host
    print(f"drkernel mcp: http://{shown}:{listener.getsockname()[1]}/mcp", flush=True)
    try:
        server(http_application(make_server(Toolbox(pool, limits)), token)).run(sockets=[listener])
    finally:
        asyncio.run(pool.close())
