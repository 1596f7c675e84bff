"""Commands of drkernel in this process: a new one would load torch each time."""

import contextlib
import traceback
from pathlib import Path

import click
from click.testing import CliRunner, Result

from drkernel.cli import main


@click.command(add_help_option=False, context_settings={"ignore_unknown_options": True})
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def _drkernel(arguments: tuple[str, ...]) -> None:
    main(list(arguments))


def invoke(*arguments: object, columns: int = 120) -> Result:
    """Run ``drkernel ARGUMENTS``; its exit code and what it printed."""
    return CliRunner().invoke(_drkernel, list(map(str, arguments)), env={"COLUMNS": str(columns)})


def drkernel(*arguments: object, cwd: Path, code: int = 0, columns: int = 120) -> Result:
    """The same in a folder, with this exit code."""
    with contextlib.chdir(cwd):
        done = invoke(*arguments, columns=columns)
    assert done.exit_code == code, done.output + "".join(traceback.format_exception(done.exception))
    return done
