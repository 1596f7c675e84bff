"""``drkernel eval REFERENCE CANDIDATE``: grade one candidate."""

import asyncio
import importlib
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from drkernel.cli.options import Fields, Graders, command_line, spread
from drkernel.cli.terms import HOST_HELP, no_profile, output
from drkernel.config import ConfigError
from drkernel.gym.request import OWN_SECONDS, EvalRequest, EvalSettings
from drkernel.sim.spec import in_host
from drkernel.task import Precision

app = command_line()

EXIT_CODES = {"correct": 0, "invalid_request": 2, "hack": 3, "infra_error": 4, "unsupported": 5}
WRONG = 1

HELP = """Grade a candidate kernel against a reference module.

REFERENCE is a file in KernelBench's format (Model, get_inputs, get_init_inputs), a built-in task such as
builtin/level1/softmax, or a task spec that names one task: kernelbench:DIR/level1/23, jsonl:FILE#ID. CANDIDATE is a
file that defines ModelNew, or '-' for standard input.

Exit codes: 0 correct, 1 not correct (wrong, or it failed), 2 wrong usage (also a reference that cannot be graded),
3 it is a hack, 4 the grader itself failed, 5 the device cannot run this kind of kernel.

Examples:

  drkernel eval examples/softmax/reference.py examples/softmax/candidate.py

  drkernel eval kernelbench:KernelBench/level1/23 mine.py

  drkernel eval builtin/level2/linear_bias_gelu mine.py --profile small --json | jq .speedup.value
"""


@app.command(help=HELP)
@spread
def evaluate(
    reference: Annotated[str, typer.Argument(help="a reference file, a built-in task or a task spec")],
    candidate: Annotated[str, typer.Argument(help="a file that defines ModelNew; '-' reads standard input")],
    terms: Annotated[
        EvalSettings,
        Fields(
            "device", "baseline", "time_at", "checks", "trials", "co_judge", "seed", "unsafe_no_checks",
            deadline="deadline_s", budget=("own_seconds", OWN_SECONDS),
        ),
    ] = EvalSettings(),
    host: Annotated[str | None, typer.Option(metavar="NAME|SECONDS", help=HOST_HELP)] = None,
    profile: Annotated[str | None, typer.Option(help="size profile; default: tiny where the task has it")] = None,
    precision: Annotated[Precision | None, typer.Option(help="declared precision")] = None,
    exact: Annotated[
        bool,
        typer.Option("--exact/--no-exact", help="compare a right answer with the reference without a tolerance, too"),
    ] = True,
    as_json: Annotated[bool, typer.Option("--json", help="print the verdict as JSON and nothing else")] = False,
    graders: Annotated[Graders, Fields("pool", "memory_gib")] = Graders(),
    html: Annotated[Path | None, typer.Option(help="also write a self-contained HTML page")] = None,
    trace: Annotated[Path | None, typer.Option(help="also write one call's kernels as a trace for Perfetto")] = None,
) -> None:  # fmt: skip
    """Parse, grade, print."""
    from drkernel.tasks.loaders import load_task

    task = load_task(reference, precision)
    source = _candidate(candidate)
    if profile is not None and profile not in task.profiles:
        raise ConfigError(no_profile(task, profile))
    further = {"device": in_host(terms.device, host), "lines": html is not None or trace is not None}
    given = {} if profile is None else {"profile": profile}
    settings = terms.model_copy(update={**further, "exact": float(exact), **given})
    request = EvalRequest(task=task, candidate=source, settings=settings)
    verdict = asyncio.run(_grade(request, graders))
    if as_json:
        print(verdict.model_dump_json(indent=2))
    else:
        from drkernel.report.verdict import terminal

        output().print(terminal(verdict, source))
    if html is not None:
        from drkernel.report.verdict import write_page

        write_page(html, request, verdict)
        print(f"wrote {html}", file=sys.stderr)
    if trace is not None:
        from drkernel.report.sim import trace_of_verdict, write_trace

        write_trace(trace, trace_of_verdict(verdict))
        print(f"wrote {trace}", file=sys.stderr)
    raise SystemExit(EXIT_CODES.get(verdict.status, WRONG))


def _candidate(path: str) -> str:
    try:
        return sys.stdin.read() if path == "-" else Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"cannot read the candidate {path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"the candidate {path} is not UTF-8 text: {error.reason}") from None


async def _grade(request: EvalRequest, graders: Graders) -> Any:
    """Run one evaluation, by a service or on this machine, and leave no process behind."""
    async with graders.model_copy(update={"slots": 1}).grading() as judges:
        asked = asyncio.ensure_future(judges.evaluate(request))
        await asyncio.sleep(0)
        importlib.import_module("drkernel.report.verdict")  # while it is graded
        return await asked
