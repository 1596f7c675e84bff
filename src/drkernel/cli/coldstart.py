"""``drkernel coldstart --out FILE``: verified trajectories for supervised fine-tuning."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

app = typer.Typer(add_completion=False, rich_markup_mode="rich")

HELP = """Write multi-turn trajectories of the program teacher, every turn graded by the real judge, as JSON lines.

An interrupted run goes on where it stopped.

Exit codes: 0 written, 1 nothing could be kept, 2 wrong usage, 130 interrupted.

Examples:

  drkernel coldstart --out data/cold.jsonl --tasks 480

  drkernel coldstart --out data/cold.jsonl --tasks 8000 --turns 3 --seed 1 --json
"""


@app.command(help=HELP)
def coldstart(
    out: Annotated[Path, typer.Option(help="the file to write; taken up again when it is there")],
    tasks: Annotated[int, typer.Option(min=1, help="generated tasks, one trajectory each")] = 480,
    turns: Annotated[int, typer.Option(min=1, help="answers a trajectory")] = 2,
    seed: Annotated[int, typer.Option(min=0, help="decides tasks and answers")] = 0,
    device: Annotated[str, typer.Option(help="'sim:GPU' models time without a GPU, 'cuda:N' measures")] = "sim:h200",
    slots: Annotated[int | None, typer.Option(min=1, help="evaluations at once; default: one a core")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print the summary as JSON and nothing else")] = False,
) -> None:
    """Parse, write, print."""
    from pydantic import ValidationError

    from drkernel.config import ConfigError
    from drkernel.rl.coldstart import ColdstartConfig

    try:
        config = ColdstartConfig.model_validate(
            {
                "tasks": tasks,
                "seed": seed,
                "episode": {"turns": turns, "prompts": "compact", "settings": {"device": device}},
                "concurrency": 2 * (slots or 2),
            }
        )
        summary = asyncio.run(_write(config, out, slots, quiet=as_json))
    except KeyboardInterrupt:
        print("interrupted; the same command goes on from here", file=sys.stderr)
        raise SystemExit(130) from None
    except (ConfigError, ValidationError) as error:
        print(f"drkernel coldstart: {error}", file=sys.stderr)
        raise SystemExit(2) from None
    if as_json:
        print(json.dumps(summary.model_dump()))
    else:
        print(f"{out}: {summary.trajectories} trajectories, {summary.turns} turns")
        print("  by plan:   " + _counts(summary.by_plan))
        print("  by status: " + _counts(summary.by_status))
        if summary.dropped:
            print("  left out:  " + _counts(summary.dropped))
    raise SystemExit(0 if summary.trajectories else 1)


async def _write(config: Any, out: Path, slots: int | None, quiet: bool) -> Any:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from drkernel.gym.pool import LocalPool
    from drkernel.rl.coldstart import write_coldstart

    columns = (TextColumn("trajectories"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    pool = LocalPool(slots=slots)
    try:
        with Progress(*columns, disable=quiet or not sys.stderr.isatty()) as bar:
            line = bar.add_task("", total=config.tasks)
            return await write_coldstart(
                config, pool, out, lambda done, total, counts: bar.update(line, completed=done, total=total)
            )
    finally:
        await pool.close()


def _counts(values: dict[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(values.items(), key=lambda item: -item[1]))
