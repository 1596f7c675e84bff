"""``drkernel mcp``: tools for coding agents, over the Model Context Protocol."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from drkernel.cli.terms import MEMORY_HELP, POOL_HELP, check_pool, grading, open_pool, to_bytes
from drkernel.config import ConfigError

if TYPE_CHECKING:
    from drkernel.agents.server import ToolLimits

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)

HELP = """Offer drkernel's tools to coding agents over the Model Context Protocol.

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


@app.command(help=HELP)
def mcp(
    http: Annotated[bool, typer.Option("--http", help="streamable HTTP instead of standard input and output")] = False,
    host: Annotated[str, typer.Option(help="address to listen on, with --http")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="port, with --http; 0 takes a free one")] = 8770,
    evaluations: Annotated[
        int | None, typer.Option(min=1, help="evaluations and simulations in all; default: unlimited")
    ] = None,
    deadline: Annotated[float, typer.Option(min=0.1, help="seconds that one candidate or script may take")] = 60.0,
    folder: Annotated[Path | None, typer.Option(help="files under it may be named in place of sources")] = None,
    builtin_only: Annotated[bool, typer.Option("--builtin-only", help="grade tasks of the suite only")] = False,
    slots: Annotated[int, typer.Option(min=1, help="evaluations at once")] = 1,
    pool: Annotated[str | None, typer.Option(help=POOL_HELP)] = None,
    memory_gib: Annotated[float | None, typer.Option(min=0.1, help=MEMORY_HELP)] = None,
) -> None:
    """Parse, serve."""
    from drkernel.agents.server import ToolLimits

    check_pool(pool)
    if folder is not None and not folder.is_dir():
        raise ConfigError(f"--folder {folder} is not a folder")
    files = folder if folder is not None or http else Path.cwd()
    limits = ToolLimits(
        evaluations=evaluations, deadline_s=deadline, folder=files, references="builtin" if builtin_only else "any"
    )
    if http:
        _serve_http(host, port, slots, pool, to_bytes(memory_gib), limits)
    else:
        asyncio.run(_serve_stdio(slots, pool, to_bytes(memory_gib), limits))


async def _serve_stdio(slots: int, url: str | None, memory: int | None, limits: ToolLimits) -> None:
    from drkernel.agents.server import Toolbox, make_server

    async with grading(url, slots=slots, memory_bytes=memory) as pool:
        await make_server(Toolbox(pool, limits)).run_stdio_async()


def _serve_http(host: str, port: int, slots: int, url: str | None, memory: int | None, limits: ToolLimits) -> None:
    from drkernel.agents.server import Toolbox, http_application, make_server
    from drkernel.serve.guard import bind, check_binding, server

    token = os.environ.get("DRKERNEL_TOKEN") or None
    check_binding(host, token)
    listener = bind(host, port)
    pool = open_pool(url, slots=slots, memory_bytes=memory)
    shown = f"[{host}]" if ":" in host else host
    print(f"drkernel mcp: http://{shown}:{listener.getsockname()[1]}/mcp", flush=True)
    try:
        server(http_application(make_server(Toolbox(pool, limits)), token)).run(sockets=[listener])
    finally:
        asyncio.run(pool.close())
