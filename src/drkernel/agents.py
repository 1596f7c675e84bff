"""Tools for coding agents, and the Model Context Protocol server that offers them."""

import asyncio
import hashlib
import re
from collections.abc import Iterable
from io import StringIO
from pathlib import Path
from typing import Annotated, Any, Literal

from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ResourceError
from mcp.server.mcpserver.exceptions import ToolError as Refusal
from mcp.server.transport_security import TransportSecuritySettings
from pydantic import Field, ValidationError

from drkernel import __version__
from drkernel.base.files import Recent
from drkernel.config import Config
from drkernel.gym.explain import EXPLANATIONS, explain
from drkernel.gym.feedback import feedback, shorten
from drkernel.gym.request import OWN_SECONDS, EvalRequest, EvalSettings, Pool
from drkernel.gym.runner.confined_script import ConfinedRun, ScriptTerms, run_confined
from drkernel.report.sim import terminal as render_run
from drkernel.sim.spec import get_spec, known_gpus
from drkernel.task import Precision, Provenance, Task, TaskError
from drkernel.tasks.loaders import builtin_tasks, load_task
from drkernel.verdict import Finding, Verdict, printable
from ttir_executor.compiled import SimFinding

# ---- The tools that coding agents get
#
# An answer names a resource that holds the whole record. Evaluations and simulations count against one budget; every
# candidate and every script is sandboxed and has a deadline. docs/agents.md is the user's page.


KEPT = 200
"""most records that are kept for resources"""
MAX_SOURCE = 1 << 20
"""most bytes of a file that is read in place of a source"""
WIDTH, ANSWER = 100, 4000
"""columns of a rendered report; characters of one answer"""


class ToolError(Refusal, ResourceError):
    """The tool cannot do what was asked; the message says why, for the agent, without control characters."""

    def __str__(self) -> str:
        return printable(super().__str__())


class ToolLimits(Config):
    """The limits on what the tools of one server may spend."""

    evaluations: int | None = Field(None, ge=1, description="evaluations and simulations in all; None: unlimited")
    deadline_s: float = Field(60.0, gt=0, description="seconds that one candidate or script may take")
    folder: Path | None = Field(
        None, description="references, candidates and scripts may be files under it; None: none"
    )
    references: Literal["any", "builtin"] = Field(
        "any",
        description="'builtin' takes only tasks of the suite: a reference is code that runs with the user's rights",
    )


Source = Annotated[str, Field(description="whole Python source, or a path under the server's folder where it has one")]


class Toolbox:
    """The tools of one server, over one pool: agents read the annotations and docstrings of its tools.

    A tool raises :class:`ToolError` for what cannot be graded, run or found, or when the budget is spent.
    """

    def __init__(self, pool: Pool, limits: ToolLimits = ToolLimits()):
        self.pool, self.limits = pool, limits
        self.used = 0
        """evaluations and simulations so far"""
        self.records: Recent[str, str] = Recent(KEPT)
        """JSON of the latest records, by the path of their resource"""
        self._simulating = asyncio.Semaphore(1)  # a script at a time

    async def evaluate(
        self,
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
        precision: Annotated[Precision | None, Field(description="declared precision of the task")] = None,
    ) -> str:
        """Grade a kernel module against a reference: right or wrong, a hack or not, how fast, where the time goes."""
        task = self._task(reference, precision)
        source = self._text(candidate, "candidate")
        try:
            settings = EvalSettings(
                device=device, deadline_s=self.limits.deadline_s, lines=True, own_seconds=OWN_SECONDS
            )
        except ValidationError as error:
            raise ToolError(error.errors()[0]["msg"].removeprefix("Value error, ")) from None
        self._spend()
        verdict = await self.pool.evaluate(EvalRequest(task=task, candidate=source, settings=settings))
        return self._answer(describe(verdict, source, ANSWER), "verdicts", verdict)

    async def simulate(
        self,
        script: Annotated[
            Source, Field(description="a script for CUDA (device='cuda', @triton.jit); it runs unchanged")
        ],
        gpu: Annotated[str, Field(description="h200, a100, l40s, ...; see gpus")] = "h200",
        no_data: Annotated[bool, Field(description="model without data, for sizes too large to execute")] = False,
        checks: Annotated[Literal["auto", "full", "off"], Field(description="the sanitizer")] = "auto",
    ) -> str:
        """Run a script on a simulated GPU: launches, sanitizer findings with source lines, and the modelled profile."""
        try:
            name = get_spec(gpu.removeprefix("sim:")).name
        except ValueError as error:
            raise ToolError(str(error)) from None
        source = self._text(script, "script")
        terms = ScriptTerms(gpu=name, no_data=no_data, checks=checks, deadline_s=self.limits.deadline_s)
        self._spend()
        async with self._simulating:
            run = await asyncio.to_thread(run_confined, source, terms)
        return self._answer(describe_run(run, source, ANSWER), "simulations", run)

    def tasks(
        self,
        match: Annotated[str, Field(description="part of an id or a tag; a whole id shows the task's source")] = "",
    ) -> str:
        """List the built-in tasks, or show the reference of one."""
        found = [task for task in builtin_tasks() if match in task.id or match in task.tags]
        exact = [task for task in found if match in (task.id, task.id.removeprefix("builtin/"))]
        if exact:
            return f"{exact[0].id} ({exact[0].precision}; {', '.join(exact[0].tags)})\n\n{exact[0].reference}"
        if not found:
            raise ToolError(f"no built-in task has {match!r} in its id or tags")
        return "\n".join(f"{task.id}  {', '.join(task.tags)}" for task in found)

    def gpus(self) -> str:
        """List the GPUs that can be simulated, with their published figures."""
        lines = ["name  GPU  memory GiB  GB/s  SMs"]
        for name in known_gpus():
            spec = get_spec(name)
            lines.append(
                f"sim:{name}  {spec.full_name}  {spec.hbm_bytes / 2**30:.0f}  {spec.hbm_bandwidth / 1e9:.0f}  "
                f"{spec.sm_count}"
            )
        return "\n".join(lines)

    def explain(
        self, finding: Annotated[str, Field(description="its name, e.g. decoy_kernel or out_of_bounds")]
    ) -> str:
        """Say what a finding of evaluate or simulate means, and how to mend the kernel."""
        try:
            return f"{finding}\n{explain(finding).text}"
        except ValueError as error:
            raise ToolError(str(error)) from None

    def record(self, path: str) -> str:
        """Return the whole record behind an answer, as JSON. Raises :class:`ToolError` when it is not kept."""
        data = self.records.get(path)
        if data is None:
            raise ToolError(f"no record {path}; the latest {KEPT} are kept")
        return data

    # ----

    def _task(self, reference: str, precision: str | None) -> Task:
        named = "" if _is_source(reference) else reference
        try:
            if named.startswith(("builtin/", "level")):
                task = load_task(named)
            elif self.limits.references == "builtin":
                raise ToolError("this server grades built-in tasks only; the tool 'tasks' lists them")
            else:
                source = self._text(reference, "reference")
                digest = hashlib.sha256(source.encode()).hexdigest()[:8]
                task = Task(id=f"agent/{digest}", reference=source, provenance=Provenance(source="file"))
            return task if precision is None else Task.model_validate(task.model_dump() | {"precision": precision})
        except (TaskError, ValidationError) as error:
            raise ToolError(str(error)) from None

    def _text(self, given: str, what: str) -> str:
        """Return source text: what was given, or the file under the permitted folder that it names."""
        if _is_source(given):
            return given
        folder = self.limits.folder
        if folder is None:
            raise ToolError(f"{what}: give the whole source text; this server reads no files")
        name = given.strip()
        try:
            path = (folder / name).resolve()
            if not path.is_relative_to(folder.resolve()):
                raise ToolError(f"{what}: {name[:200]} is not under {folder}")
            # neither a pipe, which nobody may write to, nor more than any source: the server would wait, or hold it all
            if not path.is_file() or path.stat().st_size > MAX_SOURCE:
                raise ToolError(f"{what}: {name[:200]} is neither source text nor a file of at most {MAX_SOURCE} bytes")
            return path.read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            raise ToolError(f"{what}: neither source text nor a file that can be read: {reason}") from None

    def _spend(self) -> None:
        most = self.limits.evaluations
        if most is not None and self.used >= most:
            raise ToolError(f"the budget is spent: {most} evaluations were made")
        self.used += 1

    def _answer(self, text: str, kind: str, record: Config) -> str:
        """Keep the record, and end the text with where it is and what is left of the budget."""
        data = record.model_dump_json()
        path = f"{kind}/{hashlib.sha256(data.encode('utf-8', 'surrogatepass')).hexdigest()[:12]}"
        self.records[path] = data
        most = self.limits.evaluations
        budget = "" if most is None else f"; {self.used} of {most} evaluations used"
        return f"{text}\n\nwhole record: drkernel://{path}{budget}"


def _is_source(given: str) -> bool:
    """Whether this is source text, be it of one line, and no name of a file or task."""
    return re.search(r"[\n;=(]|:\s", given.strip()) is not None


def describe(verdict: Verdict, source: str, budget: int) -> str:
    """Describe a verdict in at most ``budget`` characters: status, speed, reason, where the time goes, what to fix."""
    head = f"{verdict.status.upper().replace('_', ' ')}  {verdict.task_id} on {verdict.device}"
    mend = _mend(verdict.findings)
    room = max(400, budget - len(head) - len(mend) - 2)
    return shorten(f"{head}\n{feedback(verdict, room, source=source)}{mend}", budget)


def describe_run(run: ConfinedRun, source: str, budget: int) -> str:
    """Describe a script's run in at most ``budget`` characters."""
    from rich.console import Console

    output = printable(run.output.strip())
    printed = f"It printed:\n{shorten(output, budget // 4)}\n" if output else ""
    report = run.report
    if report is None:
        return shorten(f"No report: {run.ended}.\n{printed}", budget)

    def read(file: str) -> str:
        """The script, whatever else the report names: it comes from where the script has run."""
        return source if file == report.script else ""

    out = StringIO()
    Console(file=out, width=WIDTH, color_system=None, highlight=False).print(render_run(report, read))
    text = "\n".join(line.rstrip() for line in out.getvalue().strip().splitlines())
    mend = _mend(report.findings)
    return shorten(printed + shorten(printable(text), max(400, budget - len(printed) - len(mend))) + mend, budget)


def _mend(findings: Iterable[Finding | SimFinding]) -> str:
    """A line for each kind of finding that says how to fix it."""
    kinds = dict.fromkeys(finding.kind for finding in findings if finding.kind in EXPLANATIONS)
    return "".join(f"\nTo mend {kind}: {EXPLANATIONS[kind].mend}" for kind in kinds)


# ---- The Model Context Protocol server


INSTRUCTIONS = """drkernel grades Triton kernels without a GPU. Write a module ModelNew that computes what the
reference's Model computes, faster, with kernels of its own. Use `simulate` for a script that launches kernels (it finds
races and accesses out of bounds, and models the time), `evaluate` for a verdict (correct? a hack? how fast?),
`explain` for a finding, `tasks` and `gpus` to see what there is. Times on sim: devices are modelled, not measured."""


def make_server(box: Toolbox) -> MCPServer[Any]:
    """Return a server that offers the toolbox; the caller runs it over a transport."""
    server: MCPServer[Any] = MCPServer("drkernel", instructions=INSTRUCTIONS, version=__version__, log_level="WARNING")
    for tool in (box.evaluate, box.simulate, box.tasks, box.gpus, box.explain):
        server.add_tool(tool)

    @server.resource("drkernel://verdicts/{digest}", mime_type="application/json")
    async def verdict(digest: str) -> str:
        """A whole verdict: profile rows, findings with their evidence, sandbox layers."""
        return box.record(f"verdicts/{digest}")

    @server.resource("drkernel://simulations/{digest}", mime_type="application/json")
    async def simulation(digest: str) -> str:
        """A whole simulation: every launch, finding and profile row, and what the script printed."""
        return box.record(f"simulations/{digest}")

    return server


def http_application(server: MCPServer[Any], token: str | None) -> Any:
    """Return the server as an ASGI application at /mcp, guarded like ``drkernel serve``: without a token this machine
    alone is answered, with one only who presents it."""
    from drkernel.serve.guard import Guard

    # the guard checks hosts, origins and tokens; the package's own check knows no tokens
    security = TransportSecuritySettings(enable_dns_rebinding_protection=False)
    application = server.streamable_http_app(stateless_http=True, transport_security=security)
    return Guard(application, token=token, max_body=4 << 20, rate=0.0)
