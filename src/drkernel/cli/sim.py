"""``drkernel sim FILE.py``: run a script that launches Triton kernels on a simulated GPU."""

from __future__ import annotations

import contextlib
import gc
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NoReturn

import typer
from typer.core import TyperCommand

from drkernel.cli.options import command_line, spread, to_bytes
from drkernel.config import ConfigError

if TYPE_CHECKING:
    from drkernel.sim.script import ScriptReport

app = command_line()

AXIS = re.compile(r"([A-Za-z_]\w*)=(\d+(?:,\d+)*)")
"""one axis of a sweep"""
SETTING = re.compile(r"[A-Za-z_]\w*=[\w,.]*")
"""what is meant as an axis of a sweep"""


HELP = """Run a script on a simulated GPU and report what its Triton kernels did, their errors and their modelled time.

FILE.py is any script written for CUDA (device="cuda", @triton.jit); it runs unchanged, without a GPU. Kernels are
executed on the CPU and sanitized: out-of-bounds and misaligned accesses, reads of memory that nothing wrote, races.
Times are modelled for the GPU, never measured. Arguments after '--' are passed to the script.

A launch that takes over a second, of a kernel that ran before, is executed when something reads what it writes; one
that nothing reads is counted from a sample of its programs, and the report says so. --checks full executes all.

With --no-data nothing is computed and no memory is needed, so a product at 8192 cubed takes a second: tensors have no
contents, launches are modelled from a sample of their programs, and dependences on data are reported.

--html writes a page: kernels with each line's share of the time, what limits them, a roofline, a timeline. --sweep
runs the script with other warps, stages and block sizes.

Exit codes: 0 fine, 1 the script failed, 2 wrong usage, 3 the sanitizer found an error, 130 interrupted.

Examples:

  drkernel sim examples/sim/softmax.py

  drkernel sim examples/sim/out_of_bounds.py --checks full

  drkernel sim examples/sim/softmax.py --gpu a100 --depth full -- 512 2000

  drkernel sim examples/sim/large_matmul.py --no-data

  drkernel sim examples/sim/column_sum.py --no-data --html page.html

  drkernel sim --sweep ROWS=32,128,512 WIDTH=32,64,128 examples/sim/column_sum_blocks.py

  drkernel sim examples/sim/softmax.py --json | jq '.launches[] | [.kernel, .bound, .roofline]'
"""


class _SweepCommand(TyperCommand):
    """Takes settings for ``--sweep`` in any number and place before ``--``; behind it they are the script's."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        end = args.index("--") if "--" in args else len(args)
        given = args[:end]
        if "--sweep" in given:
            settings = [word for word in given if SETTING.fullmatch(word)]
            others = [word for word in given if word != "--sweep" and word not in settings]
            given = [*others, *(word for setting in settings or [""] for word in ("--sweep", setting))]
        return super().parse_args(ctx, [*given, *args[end:]])


@app.command(cls=_SweepCommand, help=HELP, context_settings={"allow_interspersed_args": True})
@spread
def sim(
    file: Annotated[Path, typer.Argument(metavar="FILE.py", help="the script to run")],
    args: Annotated[list[str] | None, typer.Argument(metavar="[-- ARGS]", help="arguments of the script")] = None,
    gpu: Annotated[str, typer.Option(help="h100, a100, l40s, rtx4090, ...; or FILE.yaml, a card of your own")] = "h200",
    host: Annotated[str | None, typer.Option(metavar="NAME|SECONDS", help="its host, as in eval")] = None,
    checks: Annotated[
        Literal["auto", "full", "off"], typer.Option(help="sanitizer: auto checks small launches")
    ] = "auto",
    depth: Annotated[
        Literal["ttir", "full"], typer.Option(help="full also compiles for the GPU: registers, shared memory")
    ] = "ttir",
    no_data: Annotated[
        bool, typer.Option("--no-data", help="count and model without data, at sizes too large to execute")
    ] = False,
    trace: Annotated[Path | None, typer.Option(help="also write the modelled timeline for Perfetto")] = None,
    html: Annotated[Path | None, typer.Option(help="also write a page: source lines, limits, roofline")] = None,
    sweep: Annotated[
        list[str] | None, typer.Option(metavar="NAME=N,N...", help="times with these settings, without data")
    ] = None,
    csv: Annotated[Path | None, typer.Option(help="of a sweep: also write its rows")] = None,
    memory_budget: Annotated[
        float | None,
        typer.Option(metavar="GIB", min=0.01, help="of this machine's memory for the device [default: half]"),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print JSON alone; the script's output is on stderr")] = False,
) -> None:
    """Parse, run, print."""
    given = list(args or ())
    if not file.is_file():
        raise ConfigError(f"no such script: {file}")
    if sweep and trace:
        raise ConfigError("--sweep is for itself; --trace is of one run")
    if csv and not sweep:
        raise ConfigError("--csv writes the rows of a --sweep")
    from drkernel.sim.spec import get_spec, in_host, own_card

    gpu = own_card(Path(gpu)) if gpu.endswith((".yaml", ".yml")) else get_spec(gpu).name
    gpu = in_host(gpu, host)
    if no_data and checks != "auto":
        raise ConfigError("--checks needs data: it does not go with --no-data")
    gc.disable()  # it would walk what is imported many times: a fifth of the start
    from drkernel.sim.gpu.datafree import DataFree  # loads torch: after the usage is known to be right
    from drkernel.sim.host.triton_frontend import kernels_on_disk, warm
    from drkernel.sim.script import run_script

    warm()
    gc.freeze()
    gc.enable()
    budget = to_bytes(memory_budget)
    if sweep:
        run_sweep(file, _axes(sweep), given, gpu, budget, html, csv, as_json)
    with _output_on_stderr() if as_json else contextlib.nullcontext(), kernels_on_disk():
        data_free = DataFree.of_script() if no_data else None
        report = run_script(
            file, given, gpu=gpu, checks=checks, depth=depth, data_free=data_free,
            budget_bytes=budget,
            trace=trace is not None or html is not None,
        )  # fmt: skip
    if as_json:
        print(report.model_dump_json(indent=2))
    else:
        from drkernel.cli.terms import output
        from drkernel.report.sim import terminal

        output().print(terminal(report))
    _write(report, trace, html)
    raise SystemExit(report.exit_code)


def _axes(given: list[str]) -> dict[str, list[int]]:
    axes = {}
    for text in given:
        found = AXIS.fullmatch(text)
        if found is None:
            raise ConfigError(f"--sweep {text}: it is NAME=NUMBER,NUMBER,..., such as BLOCK=64,128")
        axes[found.group(1)] = list(dict.fromkeys(int(number) for number in found.group(2).split(",")))
    return axes


def _write(report: ScriptReport, trace: Path | None, html: Path | None) -> None:
    """Write the other requested outputs."""
    if trace is not None:
        from drkernel.report.sim import trace_of_run, write_trace

        write_trace(trace, trace_of_run(report))
        print(f"wrote {trace}", file=sys.stderr)
    if html is not None:
        from drkernel.report.sim import write_page

        write_page(html, report)
        print(f"wrote {html}", file=sys.stderr)


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


# ---- sweeps


INTERRUPTED = 130


def run_sweep(
    file: Path, axes: dict[str, list[int]], args: list[str], gpu: str, budget: int | None, html: Path | None,
    csv: Path | None, as_json: bool,
) -> NoReturn:  # fmt: skip
    """Run a sweep and print it. Exit code: 0 where a configuration has a time, 1 where none has."""

    from drkernel.cli.terms import output
    from drkernel.report.sim import render_sweep, write_rows, write_sweep
    from drkernel.sim.sweep import sweep

    try:
        found = sweep(file, axes, args, gpu=gpu, budget_bytes=budget)
    except ValueError as error:
        raise ConfigError(str(error)) from None
    except KeyboardInterrupt:
        raise SystemExit(INTERRUPTED) from None
    print(found.model_dump_json(indent=2)) if as_json else output().print(render_sweep(found))
    for path, write in ((html, write_sweep), (csv, write_rows)):
        if path is not None:
            write(path, found)
            print(f"wrote {path}", file=sys.stderr)
    raise SystemExit(0 if found.best is not None else 1)
