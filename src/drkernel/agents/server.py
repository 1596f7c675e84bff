"""The Model Context Protocol server: the toolbox under the names, schemas and resources that agents see."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Annotated, Any, Literal, TypeVar

from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ResourceError
from mcp.server.mcpserver.exceptions import ToolError as Refusal
from mcp.server.transport_security import TransportSecuritySettings
from pydantic import Field

from drkernel import __version__
from drkernel.agents.tools import Toolbox, ToolError

T = TypeVar("T")

INSTRUCTIONS = """drkernel grades Triton kernels without a GPU. Write a module ModelNew that computes what the
reference's Model computes, faster, with kernels of its own. Use `simulate` for a script that launches kernels (it finds
races and accesses out of bounds, and models the time), `evaluate` for a verdict (correct? a hack? how fast?),
`explain` for a finding, `tasks` and `gpus` to see what there is. Times on sim: devices are modelled, not measured."""

Source = Annotated[str, Field(description="whole Python source, or a path under the server's folder where it has one")]


def make_server(box: Toolbox) -> MCPServer[Any]:
    """Return a server that offers the toolbox; the caller runs it over a transport."""
    server: MCPServer[Any] = MCPServer("drkernel", instructions=INSTRUCTIONS, version=__version__, log_level="WARNING")

    @server.tool()
    async def evaluate(
        reference: Annotated[
            str,
            Field(
                description="source with Model, get_inputs, get_init_inputs (KernelBench's format); or a built-in "
                "task such as builtin/level1/softmax"
            ),
        ],
        candidate: Annotated[
            Source, Field(description="source that defines ModelNew, like Model but with own kernels")
        ],
        device: Annotated[str, Field(description="sim:GPU models time (see gpus), cuda:N measures")] = "sim:h200",
        precision: Annotated[
            Literal["fp32", "tf32", "fp16", "bf16", "fp64"] | None, Field(description="declared precision of the task")
        ] = None,
    ) -> str:
        """Grade a kernel module against a reference: right or wrong, a hack or not, how fast, where the time goes."""
        return await _refused(box.evaluate(reference, candidate, device, precision))

    @server.tool()
    async def simulate(
        script: Annotated[
            Source, Field(description="a script for CUDA (device='cuda', @triton.jit); it runs unchanged")
        ],
        gpu: Annotated[str, Field(description="h200, a100, l40s, ...; see gpus")] = "h200",
        no_data: Annotated[bool, Field(description="model without data, for sizes too large to execute")] = False,
        checks: Annotated[Literal["auto", "full", "off"], Field(description="the sanitizer")] = "auto",
    ) -> str:
        """Run a script on a simulated GPU: launches, sanitizer findings with source lines, and the modelled profile."""
        return await _refused(box.simulate(script, gpu, no_data, checks))

    @server.tool()
    async def tasks(
        match: Annotated[str, Field(description="part of an id or a tag; a whole id shows the task's source")] = "",
    ) -> str:
        """List the built-in tasks, or show the reference of one."""
        return _said(lambda: box.tasks(match))

    @server.tool()
    async def gpus() -> str:
        """List the GPUs that can be simulated, with their published figures."""
        return box.gpus()

    @server.tool()
    async def explain(
        finding: Annotated[str, Field(description="its name, e.g. decoy_kernel or out_of_bounds")],
    ) -> str:
        """Say what a finding of evaluate or simulate means, and how to mend the kernel."""
        return _said(lambda: box.explain(finding))

    @server.resource("drkernel://verdicts/{digest}", mime_type="application/json")
    async def verdict(digest: str) -> str:
        """A whole verdict: profile rows, findings with their evidence, sandbox layers."""
        return _record(box, f"verdicts/{digest}")

    @server.resource("drkernel://simulations/{digest}", mime_type="application/json")
    async def simulation(digest: str) -> str:
        """A whole simulation: every launch, finding and profile row, and what the script printed."""
        return _record(box, f"simulations/{digest}")

    return server


async def _refused(answer: Awaitable[T]) -> T:
    """Await an answer; what the toolbox refuses is an error that the agent reads."""
    try:
        return await answer
    except ToolError as error:
        raise Refusal(str(error)) from None


def _said(answer: Any) -> str:
    try:
        return str(answer())
    except ToolError as error:
        raise Refusal(str(error)) from None


def _record(box: Toolbox, path: str) -> str:
    try:
        return box.record(path)
    except ToolError as error:
        raise ResourceError(str(error)) from None


def http_application(server: MCPServer[Any], token: str | None, max_body: int = 4 << 20) -> Any:
    """Return the server as an ASGI application at /mcp, guarded like ``drkernel serve``: without a token this machine
    alone is answered, with one only who presents it."""
    from drkernel.serve.guard import Guard

    # the guard checks hosts, origins and tokens; the package's own check knows no tokens
    security = TransportSecuritySettings(enable_dns_rebinding_protection=False)
    application = server.streamable_http_app(stateless_http=True, transport_security=security)
    return Guard(application, token=token, max_body=max_body, rate=0.0)
