"""``drkernel prompts``: show the prompts that models receive, or write them out for editing."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from drkernel.cli import terms

if TYPE_CHECKING:
    from drkernel.episode.renderer import Prompts

app = typer.Typer(add_completion=False, rich_markup_mode="rich", pretty_exceptions_enable=False)

HELP = """Show the prompts of bench and solve, or write them as files to edit.

NAME is 'full', 'compact', 'kernelgym', a directory, or a .yaml file of KernelGYM's. With --out, the three texts and
prompts.yaml are written to DIR; edit them and use them with --prompts DIR. With --opening, system message and task are
those of a parquet file of verl's whose prompts hold the references. With --task, shows the first message as a model
reads it.

Exit codes: 0 shown or written, 2 wrong usage.

Examples:

  drkernel prompts --out my-prompts && drkernel bench --model openai:NAME --prompts my-prompts

  drkernel prompts compact --task builtin/level1/softmax

  drkernel prompts multi_turn_kernel.yaml --opening validation.parquet --out released
"""


@app.command(help=HELP)
def prompts(
    name: Annotated[
        str, typer.Argument(metavar="[NAME]", help="full, compact, kernelgym, a directory or a file")
    ] = "full",
    opening: Annotated[
        Path | None, typer.Option(metavar="PARQUET", help="rows in verl's columns whose prompts' form is taken over")
    ] = None,
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="write the files there")] = None,
    task: Annotated[str | None, typer.Option(help="show the first message for this task")] = None,
    device: Annotated[str, typer.Option(help="the device that the message names")] = "sim:h200",
    profile: Annotated[str | None, typer.Option(help="size profile of a built-in task (sim: tiny, cuda: full)")] = None,
) -> None:
    """Parse, load, print."""
    from drkernel.config import ConfigError
    from drkernel.episode.renderer import FIELDS, Prompts
    from drkernel.solve.config import default_profile

    try:
        texts = Prompts.load(name, opening=_opening(opening))
        if task is not None:
            return _show_opening(texts, task, device, profile or default_profile(device))
        if out is not None and any((out / f"{part}.txt").exists() for part in FIELDS):
            raise ConfigError(f"{out} holds prompts already; give another directory or remove them first")
    except ConfigError as error:
        terms.fail("prompts", str(error))
    if out is not None:
        texts.save(out)
        print(f"{out}: {', '.join(sorted(path.name for path in out.iterdir()))}; version {texts.version}")
        return None
    for part in FIELDS:
        print(f"=== {part}.txt\n{getattr(texts, part) or '(empty: no system message is sent)'}\n")
    print(f"=== version {texts.version}, style {texts.style}, feedback of at most {texts.feedback_chars} characters")
    return None


def _opening(path: Path | None) -> dict[str, str] | None:
    """Return the templates of a file's prompts, and say how many of its rows have them."""
    from drkernel.rl.data.released import opening_of

    if path is None:
        return None
    found, count, rows = opening_of(path)
    print(f"{path}: the form of {count} of {rows} prompts", file=sys.stderr)
    return found


def _show_opening(texts: Prompts, spec: str, device: str, profile: str | None) -> None:
    from drkernel.gym.request import EvalSettings
    from drkernel.solve.prepare import choose

    chosen = choose(spec if spec.startswith("builtin") or ":" in spec else f"file:{spec}")[0]
    for message in texts.opening(chosen, EvalSettings(device=device, profile=profile)):
        print(f"=== {message.role}\n{message.content}\n")
