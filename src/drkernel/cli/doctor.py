"""``drkernel doctor``: report what this machine can do, and what is missing."""

import json
import platform
import time
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from drkernel.cli.options import command_line
from drkernel.cli.terms import output

app = command_line()

MARKS = {"ok": ("green", "ok"), "limited": ("yellow", "limited"), "missing": ("red", "MISSING")}

DRIVER_SECONDS = 3.8e-6
"""the driver's part of a launch, where there is no GPU to measure it: launches of a short kernel one after the other
take the host 3.8 us each (NVIDIA's developer blog, Getting Started with CUDA Graphs, 2019)"""

HELP = """Report what this machine can do, and what is missing.

Starts a sandbox and grades one small kernel in it, so that the report is based on a trial. Exit codes: 0 candidates can
be graded here, 1 something that is necessary is missing.

--gpu cuda:N certifies a GPU of this machine for measured grading instead, in about five minutes: a row PASS, FAIL or a
figure each, which --out FILE also writes, to be attached to a report of trouble. docs/gpu.md says
what each row proves. Exit code 1: a row failed.

--host measures, in a second, what one small operator takes this machine's host: on a CUDA device if there is one,
otherwise from operators on the CPU. Modelled times of this host: --host of eval and sim, or sim:GPU@SECONDSus anywhere.
"""


@app.command(help=HELP)
def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="print the checks as JSON and nothing else")] = False,
    gpu: Annotated[str | None, typer.Option(help="certify this GPU (cuda:N) for measured grading")] = None,
    out: Annotated[Path | None, typer.Option(help="with --gpu: also write the rows to this file")] = None,
    host: Annotated[bool, typer.Option("--host", help="measure this host's seconds of a small operator")] = False,
) -> None:
    """Examine, print."""
    if host:
        _host(as_json)
        return
    if gpu is not None:
        raise SystemExit(_certify(gpu, out, as_json))
    from drkernel.gym.doctor import examine

    checks = examine()
    if as_json:
        print(json.dumps([check.model_dump() for check in checks], indent=2))
    else:
        from rich.table import Table
        from rich.text import Text

        table = Table.grid(padding=(0, 2))
        for check in checks:
            colour, word = MARKS[check.level]
            note = Text(check.detail)
            if check.needed_for:
                note.append(f"  ({check.needed_for})", style="dim")
            table.add_row(Text(word, style=f"bold {colour}"), check.name, note)
        output().print(table)
    raise SystemExit(1 if any(check.level == "missing" for check in checks) else 0)


def _certify(gpu: str, out: Path | None, as_json: bool) -> int:
    """Print each row as it is known; returns the exit code."""
    from drkernel.gym import doctor
    from drkernel.gym.request import EvalSettings
    from drkernel.gym.session.factory import SessionFactory

    try:
        settings = EvalSettings(device=gpu, deadline_s=300)
    except ValueError:
        settings = None
    if settings is None or settings.place.simulated:
        typer.echo(f"drkernel doctor: --gpu {gpu}: a GPU of this machine is named cuda:0, cuda:1, ...", err=True)
        return 2
    lines, rows = [], []
    with SessionFactory(spares=0) as factory:
        for row in doctor.certify(settings, factory):
            rows.append(row)
            lines.append(f"{row.result:6}  {row.name}: {row.detail}")
            if not as_json:
                typer.echo(lines[-1])
            if out is not None:  # after each: what was found outlives an interrupt
                out.write_text("\n".join([_about(gpu), *lines]) + "\n", encoding="utf-8")
    if as_json:
        print(json.dumps([row.model_dump() for row in rows], indent=2))
    return 1 if any(row.result == "FAIL" for row in rows) else 0


def _about(gpu: str) -> str:
    """What the rows are of, for whoever reads the file elsewhere."""
    from drkernel import __version__

    return f"drkernel {__version__} doctor --gpu {gpu}, {platform.platform()}, Python {platform.python_version()}"


def _host(as_json: bool) -> None:
    """Measure this machine as a host, and say what it is called in a device's name."""
    from drkernel.sim.spec import get_spec, host_name, known_hosts

    seconds, how = _small_operator()
    name = host_name(f"{seconds:.3g}")
    if as_json:
        print(json.dumps({"seconds": seconds, "how": how, "host": name}))
        return
    usual = {host: get_spec(f"h200@{host}").launch_overhead for host in known_hosts()}
    typer.echo(f"one small operator takes {name} here ({how})")
    typer.echo("hosts that come along: " + ", ".join(f"{host} {value * 1e6:g}us" for host, value in usual.items()))
    typer.echo(f"drkernel eval ... --host {name}, or anywhere a device is named: sim:h200@{name}")


def _small_operator() -> tuple[float, str]:
    """Seconds of a small eager operator on this host, and how they were found: launches on a CUDA device, or without
    one their dispatch on the CPU."""
    import torch

    card = torch.cuda.is_available()
    target = torch.zeros(32, device="cuda" if card else "cpu")
    call = target.zero_ if card else partial(target.add, 1.0)
    times = []
    for _ in range(40):
        begin = time.perf_counter()
        for _ in range(1000):
            call()
        times.append((time.perf_counter() - begin) / 1000)
        if card:
            torch.cuda.synchronize()  # outside the clock: what is asked is the host's part
    seconds = min(times)  # others at work on this machine only add
    if card:
        return seconds, f"measured on {torch.cuda.get_device_name(0)}"
    how = f"at least: {seconds * 1e6:.2f}us on the CPU, {DRIVER_SECONDS * 1e6:g}us for a driver that only a GPU shows"
    return seconds + DRIVER_SECONDS, how
