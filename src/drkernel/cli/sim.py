"""``drkernel sim FILE.py``: run a script that launches Triton kernels on a simulated GPU."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Annotated, NoReturn

import typer

app = typer.Typer(add_completion=False, rich_markup_mode="rich")

USAGE = 2


class Checks(StrEnum):
    """The launches that are sanitized."""

    auto = "auto"
    full = "full"
    off = "off"


class Depth(StrEnum):
    """How far kernels are compiled."""

    ttir = "ttir"
    full = "full"


HELP = """Run a script on a simulated GPU and report what its Triton kernels did, their errors and their modelled time.

FILE.py is any script written for CUDA (device="cuda", @triton.jit); it runs unchanged, without a GPU. Kernels are
executed on the CPU and sanitized: out-of-bounds and misaligned accesses, reads of memory that nothing wrote, races.
Times are modelled for the GPU, never measured. Arguments after '--' are passed to the script.

With --no-data nothing is computed and no memory is needed, so a product at 8192 cubed takes a second: tensors have no
contents, launches are modelled from a sample of their programs, and dependences on data are reported.

Exit codes: 0 fine, 1 the script failed, 2 wrong usage, 3 the sanitizer found an error, 130 interrupted.

Examples:

  drkernel sim examples/sim/softmax.py

  drkernel sim examples/sim/out_of_bounds.py --checks full

  drkernel sim examples/sim/softmax.py --gpu a100 --depth full -- 512 2000

  drkernel sim examples/sim/large_matmul.py --no-data

  drkernel sim examples/sim/softmax.py --json | jq '.launches[] | [.kernel, .bound, .roofline]'
"""


@app.command(help=HELP, context_settings={"allow_interspersed_args": True})
def sim(
    file: Annotated[Path, typer.Argument(metavar="FILE.py", help="the script to run")],
    args: Annotated[list[str] | None, typer.Argument(metavar="[-- ARGS]", help="arguments of the script")] = None,
    gpu: Annotated[str, typer.Option(help="h100, a100, l40s, rtx4090, ...; or FILE.yaml, a card of your own")] = "h200",
    checks: Annotated[Checks, typer.Option(help="sanitizer: auto checks small launches")] = Checks.auto,
    depth: Annotated[Depth, typer.Option(help="full also compiles for the GPU: registers, shared memory")] = Depth.ttir,
    no_data: Annotated[
        bool, typer.Option("--no-data", help="count and model without data, at sizes too large to execute")
    ] = False,
    memory_budget: Annotated[
        float | None,
        typer.Option(metavar="GIB", min=0.01, help="of this machine's memory for the device [default: a quarter]"),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print JSON alone; the script's output is on stderr")] = False,
) -> None:
    """Parse, run, print."""
    if not file.is_file():
        _usage(f"no such script: {file}")
    from drkernel.sim.spec import get_spec, own_card

    try:
        gpu = own_card(Path(gpu)) if gpu.endswith((".yaml", ".yml")) else get_spec(gpu).name
    except ValueError as error:
        _usage(str(error))
    if no_data and checks is not Checks.auto:
        _usage("--checks needs data: it does not go with --no-data")
    from drkernel.sim.gpu.datafree.records import DataFree  # loads torch: after the usage is known to be right
    from drkernel.sim.script import run_script

    with _output_on_stderr() if as_json else contextlib.nullcontext():
        data_free = DataFree() if no_data else None
        report = run_script(
            file, args or (), gpu=gpu, checks=checks.value, depth=depth.value, data_free=data_free,
            budget_bytes=None if memory_budget is None else int(memory_budget * (1 << 30)),
        )  # fmt: skip
    if as_json:
        print(report.model_dump_json(indent=2))
    else:
        from rich.console import Console

        from drkernel.report.sim_view import render

        Console(highlight=False).print(render(report))
    raise SystemExit(report.exit_code)


@contextlib.contextmanager
def _output_on_stderr() -> Iterator[None]:
    """Redirect to standard error what the script, its children and its native code write to standard output."""
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)


def _usage(message: str) -> NoReturn:
    """Print the problem and exit with the code of wrong usage."""
    print(f"drkernel sim: {message}", file=sys.stderr)
    raise SystemExit(USAGE)
