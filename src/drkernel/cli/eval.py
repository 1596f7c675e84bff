"""``drkernel eval REFERENCE CANDIDATE``: grade one candidate."""

import asyncio
import importlib
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import ValidationError

from drkernel.cli.terms import (
    HOST_HELP,
    MEMORY_HELP,
    POOL_HELP,
    PRECISIONS,
    check_pool,
    declared,
    grading,
    no_profile,
    output,
    to_bytes,
)
from drkernel.config import ConfigError
from drkernel.gym.request import OWN_SECONDS, EvalRequest, EvalSettings
from drkernel.sim.spec import in_host

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)

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
def evaluate(
    reference: Annotated[str, typer.Argument(help="a reference file, a built-in task or a task spec")],
    candidate: Annotated[str, typer.Argument(help="a file that defines ModelNew; '-' reads standard input")],
    device: Annotated[str, typer.Option(help="'sim:GPU' models time without a GPU, 'cuda:N' measures")] = "sim:h200",
    host: Annotated[str | None, typer.Option(metavar="NAME|SECONDS", help=HOST_HELP)] = None,
    baseline: Annotated[str, typer.Option(help="what speedup is against: eager or compile (torch.compile)")] = "eager",
    profile: Annotated[str | None, typer.Option(help="size profile; default: tiny where the task has it")] = None,
    time_at: Annotated[str, typer.Option(help="sizes that are timed: the task's own, or checked")] = "own",
    precision: Annotated[str | None, typer.Option(help=f"declared precision: {PRECISIONS}")] = None,
    checks: Annotated[int, typer.Option(help="calls on fresh inputs that must be right")] = 3,
    trials: Annotated[int, typer.Option(help="timed calls on a measuring device, 20 at least")] = 30,
    deadline: Annotated[float, typer.Option(help="seconds until the candidate is stopped")] = 60.0,
    budget: Annotated[float, typer.Option(help="seconds for own sizes with data if smaller ones fail")] = OWN_SECONDS,
    co_judge: Annotated[str, typer.Option(help="simulated co-judge of cuda:N: auto, off or sim:GPU")] = "auto",
    seed: Annotated[int | None, typer.Option(help="make the verdict repeatable; default: secret seeds")] = None,
    exact: Annotated[
        bool,
        typer.Option("--exact/--no-exact", help="compare a right answer with the reference without a tolerance, too"),
    ] = True,
    unsafe_no_checks: Annotated[bool, typer.Option(help="research only: grade as a naive harness would")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="print the verdict as JSON and nothing else")] = False,
    pool: Annotated[str | None, typer.Option(help=POOL_HELP)] = None,
    memory_gib: Annotated[float | None, typer.Option(min=0.1, help=MEMORY_HELP)] = None,
    html: Annotated[Path | None, typer.Option(help="also write a self-contained HTML page")] = None,
    trace: Annotated[Path | None, typer.Option(help="also write one call's kernels as a trace for Perfetto")] = None,
) -> None:
    """Parse, grade, print."""
    from drkernel.tasks.loaders import load_task

    check_pool(pool)
    device = in_host(device, host)
    task = load_task(reference, declared(precision))
    source = _candidate(candidate)
    if profile is not None and profile not in task.profiles:
        raise ConfigError(no_profile(task, profile))
    settings = _settings(
        device=device, baseline=baseline, checks=checks, trials=trials, deadline_s=deadline, seed=seed,
        own_seconds=budget, unsafe_no_checks=unsafe_no_checks, time_at=time_at, co_judge=co_judge,
        lines=html is not None or trace is not None, exact=float(exact),
        **({} if profile is None else {"profile": profile}),
    )  # fmt: skip
    request = EvalRequest(task=task, candidate=source, settings=settings)
    verdict = asyncio.run(_grade(request, pool, to_bytes(memory_gib)))
    if as_json:
        print(verdict.model_dump_json(indent=2))
    else:
        from drkernel.report.verdict import terminal

        output().print(terminal(verdict, source))
    if html is not None:
        from drkernel.report.verdict import write_page

        write_page(html, verdict, task=task, candidate=source, profile=request.settings.profile)
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


def _settings(**values: Any) -> EvalSettings:
    try:
        return EvalSettings(**values)
    except ValidationError as error:
        first = error.errors()[0]
        option, why = str(first["loc"][0]).replace("_", "-"), first["msg"].removeprefix("Value error, ")
        raise ConfigError(f"--{option}: {why}") from None


async def _grade(request: EvalRequest, pool: str | None, memory: int | None) -> Any:
    """Run one evaluation, by a service or on this machine, and leave no process behind."""
    async with grading(pool, slots=1, memory_bytes=memory) as judges:
        asked = asyncio.ensure_future(judges.evaluate(request))
        await asyncio.sleep(0)
        importlib.import_module("drkernel.report.verdict")  # while it is graded
        return await asked
