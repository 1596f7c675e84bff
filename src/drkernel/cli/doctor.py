"""``drkernel doctor``: report what this machine can do, and what is missing."""

from __future__ import annotations

import json
import platform
from itertools import chain
from pathlib import Path
from typing import Annotated

import typer

from drkernel.cli.terms import output

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)

MARKS = {"ok": ("green", "ok"), "limited": ("yellow", "limited"), "missing": ("red", "MISSING")}

HELP = """Report what this machine can do, and what is missing.

Starts a sandbox and grades one small kernel in it, so that the report is based on a trial. Exit codes: 0 candidates can
be graded here, 1 something that is necessary is missing.

--gpu cuda:N certifies a GPU of this machine for measured grading instead, in about five minutes: a row PASS, FAIL or a
figure each, which --out FILE also writes, to be attached to a report of trouble. --full adds the corpus of cheats (from
a checkout, about 25 minutes). docs/gpu.md says what each row proves. Exit code 1: a row failed.

--host measures, in a second, what one small operator takes this machine's host: on a CUDA device if there is one,
otherwise from operators on the CPU. Modelled times of this host: --host of eval and sim, or sim:GPU@SECONDSus anywhere.

--calibrate FILE.yaml times a dozen small programs on this machine's GPU instead, fits the card's figures to them, and
writes a card for --device sim:FILE.yaml; the times go to FILE.json, from which --recorded fits again anywhere.
"""


@app.command(help=HELP)
def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="print the checks as JSON and nothing else")] = False,
    gpu: Annotated[str | None, typer.Option(help="certify this GPU (cuda:N) for measured grading")] = None,
    full: Annotated[bool, typer.Option("--full", help="with --gpu: also the corpus of cheats")] = False,
    out: Annotated[Path | None, typer.Option(help="with --gpu: also write the rows to this file")] = None,
    host: Annotated[bool, typer.Option("--host", help="measure this host's seconds of a small operator")] = False,
    calibrate: Annotated[Path | None, typer.Option(help="write a card fitted to this machine's GPU")] = None,
    recorded: Annotated[Path | None, typer.Option(help="with --calibrate: fit to these recorded times")] = None,
    base: Annotated[str | None, typer.Option(help="with --calibrate: the built-in card to start from")] = None,
) -> None:
    """Examine, print."""
    if host:
        _host(as_json)
        return
    if calibrate is not None:
        _calibrate(calibrate, recorded, base)
        return
    if gpu is not None:
        raise SystemExit(_certify(gpu, full, out, as_json))
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


def _certify(gpu: str, full: bool, out: Path | None, as_json: bool) -> int:
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
        for row in chain(doctor.certify(settings, factory), doctor.full(gpu) if full else ()):
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
    from drkernel.sim.calibration.probes import this_host
    from drkernel.sim.spec import get_spec, host_name, known_hosts

    found = this_host()
    name = host_name(f"{found.seconds:.3g}")
    if as_json:
        print(json.dumps({**found.model_dump(), "host": name}))
        return
    usual = {host: get_spec(f"h200@{host}").launch_overhead for host in known_hosts()}
    typer.echo(f"one small operator takes {name} here ({found.how})")
    typer.echo("hosts that come along: " + ", ".join(f"{host} {value * 1e6:g}us" for host, value in usual.items()))
    typer.echo(f"drkernel eval ... --host {name}, or anywhere a device is named: sim:h200@{name}")


def _calibrate(target: Path, recorded: Path | None, base: str | None) -> None:
    """Measure (or read what was measured), fit, write, print."""
    from rich.table import Table

    from drkernel.sim.calibration.fit import card_text, fit
    from drkernel.sim.calibration.probes import CalibrationTimes, base_card, measure
    from drkernel.sim.spec import own_card

    try:
        if recorded is None:
            times = measure()
            target.with_suffix(".json").write_text(times.model_dump_json(indent=1) + "\n", encoding="utf-8")
        else:
            times = CalibrationTimes.model_validate_json(recorded.read_text(encoding="utf-8"))
        start = base_card(times.gpu, base)
        card, rows = fit(start, times.seconds)
        card = card.model_copy(update={"full_name": times.gpu})  # with --base it is another than the built-in one's
        target.write_text(card_text(start, card, rows, times.where), encoding="utf-8")
        name = own_card(target)
    except (OSError, ValueError, RuntimeError) as error:
        typer.echo(f"cannot calibrate: {error}", err=True)
        raise SystemExit(1) from None
    table = Table("program", "measured", "modelled before", "after", "figure", "built in", "fitted", box=None)
    for row in rows:
        seconds = (row.measured_seconds, row.modelled_before, row.modelled_after)
        figures = (row.field, f"{row.before:.4g}", f"{row.after:.4g}")
        table.add_row(row.probe, *(f"{value * 1e6:.2f} us" for value in seconds), *figures)
        if row.note:
            table.add_row("", row.note)
    output().print(table)
    typer.echo(f"{target}: {name}, for --device sim:{target}")
