"""``drkernel coldstart --out FILE``: verified trajectories for supervised fine-tuning."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from drkernel.cli import model_options as options

app = typer.Typer(add_completion=False, rich_markup_mode="rich")

HELP = """Write multi-turn trajectories of a teacher, every turn graded by the real judge, as JSON lines.

The teacher is a program that knows how to write the generated tasks, or (--source) any chat model; of a model's
trajectories the part up to the best correct turn is kept. An interrupted run goes on where it stopped.

Exit codes: 0 written, 1 nothing could be kept or the model failed, 2 wrong usage, 130 interrupted.

Examples:

  drkernel coldstart --out data/cold.jsonl --tasks 480

  drkernel coldstart --out data/cold.jsonl --tasks 8000 --turns 3 --seed 1 --json

  drkernel coldstart --out data/teacher.jsonl --source openai:NAME --base-url http://localhost:8000/v1 --turns 3
"""


@app.command(help=HELP)
def coldstart(
    out: Annotated[Path, typer.Option(help="the file to write; taken up again when it is there")],
    tasks: Annotated[int, typer.Option(min=1, help="generated tasks, one trajectory each")] = 480,
    turns: Annotated[int, typer.Option(min=1, help="answers a trajectory")] = 2,
    seed: Annotated[int, typer.Option(min=0, help="decides tasks and answers")] = 0,
    device: Annotated[str, typer.Option(help="'sim:GPU' models time without a GPU, 'cuda:N' measures")] = "sim:h200",
    source: Annotated[str, typer.Option(help="program, or a model: openai:NAME, command:PROGRAM, ...")] = "program",
    prompts: Annotated[str, typer.Option(help="compact or full (default: compact, full for a model)")] = "",
    base_url: options.BaseUrl = None,
    key_env: options.KeyEnv = None,
    temperature: options.Temperature = 1.0,
    max_tokens: options.MaxTokens = 8192,
    concurrency: options.Concurrency = 8,
    slots: Annotated[int | None, typer.Option(min=1, help="evaluations at once; default: one a core")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print the summary as JSON and nothing else")] = False,
) -> None:
    """Parse, write, print."""
    from pydantic import ValidationError

    from drkernel.config import ConfigError
    from drkernel.rl.data.coldstart import ColdstartConfig

    chosen = prompts or ("compact" if source == "program" else "full")
    try:
        config = ColdstartConfig.model_validate(
            {
                "tasks": tasks,
                "seed": seed,
                "episode": {"turns": turns, "prompts": chosen, "settings": {"device": device}},
                "concurrency": 2 * (slots or 2) if source == "program" else concurrency + 2 * (slots or 2),
            }
        )
        meter = None
        if source != "program":
            sampling = options.make_sampling(temperature, None, max_tokens, seed, None)
            meter = (_open(source, base_url, key_env, sampling, concurrency, out), sampling)
            config = config.model_copy(update={"source": meter[0].name})
        summary = asyncio.run(_write(config, out, slots, meter, quiet=as_json))
    except KeyboardInterrupt:
        print("interrupted; the same command goes on from here", file=sys.stderr)
        raise SystemExit(130) from None
    except (ConfigError, ValidationError) as error:
        print(f"drkernel coldstart: {error}", file=sys.stderr)
        raise SystemExit(2) from None
    except RuntimeError as error:  # the model gave no answer: what is written stays, and the same command goes on
        print(f"drkernel coldstart: {error}", file=sys.stderr)
        raise SystemExit(1) from None
    if as_json:
        print(json.dumps(summary.model_dump()))
    else:
        print(f"{out}: {summary.trajectories} trajectories, {summary.turns} turns")
        print("  by plan:   " + _counts(summary.by_plan))
        print("  by status: " + _counts(summary.by_status))
        if summary.dropped:
            print("  left out:  " + _counts(summary.dropped))
    raise SystemExit(0 if summary.trajectories else 1)


def _open(source: str, base_url: str | None, key_env: str | None, sampling: Any, concurrency: int, out: Path) -> Any:
    """The model, its replies kept beside the data, so that none is paid for twice."""
    from drkernel.episode.meter import Budget, Limits
    from drkernel.solve.open_model import open_model

    client = open_model(source, base_url=base_url, key_env=key_env, sampling=sampling)
    cache = out.with_name(out.name + ".replies.sqlite")
    return options.make_meter(client, cache, Limits(concurrency=concurrency), None, Budget())


async def _write(config: Any, out: Path, slots: int | None, meter: Any, quiet: bool) -> Any:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from drkernel.gym.pools.local import LocalPool
    from drkernel.rl.data.coldstart import write_coldstart

    columns = (TextColumn("trajectories"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    pool = LocalPool(slots=slots)
    try:
        with Progress(*columns, disable=quiet or not sys.stderr.isatty()) as bar:
            line = bar.add_task("", total=config.tasks)
            return await write_coldstart(
                config,
                pool,
                out,
                lambda done, total, counts: bar.update(line, completed=done, total=total),
                None if meter is None else _answerers(*meter),
            )
    finally:
        await pool.close()
        if meter is not None:
            await meter[0].close()


def _answerers(meter: Any, sampling: Any) -> Any:
    """Teachers that ask the model."""
    from drkernel.solve.teacher import ChatTeacher

    return lambda task, index: ChatTeacher(meter, task, index, sampling)


def _counts(values: dict[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(values.items(), key=lambda item: -item[1]))
