"""``drkernel export RUN...``: trajectories as data for fine-tuning."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from drkernel.cli import terms

app = typer.Typer(add_completion=False, rich_markup_mode="rich", pretty_exceptions_enable=False)

HELP = """Write the conversations of bench and solve runs as chat data: one row per conversation, each solution once.

A row ends with the best answer of a trajectory that passes the filters. Trajectories with an answer condemned
as a hack never pass, unless --allow-hacks. The JSONL is what the sft stage of 'drkernel train' reads.

Exit codes: 0 written, 1 nothing passed, 2 wrong usage.

Examples:

  drkernel export runs/bench-NAME --out data/sft.jsonl --min-speedup 1.2 --min-coverage 0.5

  drkernel export runs/a runs/b --out data/sft.parquet --tokenizer Qwen/Qwen3-8B --max-tokens 16384

  drkernel export runs/a --out my-dataset/          a Hugging Face dataset: conversations, verdicts, a card

  drkernel export runs/a --table wandb              every verdict, as a table of Weights & Biases (or trackio)
"""


@app.command(help=HELP)
def export(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="run directories of bench or solve")],
    out: Annotated[Path | None, typer.Option(help="FILE.jsonl, FILE.parquet, or a dataset's folder")] = None,
    table: Annotated[str | None, typer.Option(help="log all verdicts to this tracker: wandb or trackio")] = None,
    project: Annotated[str, typer.Option(help="the tracker's project")] = "drkernel",
    end: Annotated[str, typer.Option(help="rows end with the 'best' answer, the 'last', or one for 'every'")] = "best",
    status: Annotated[list[str] | None, typer.Option(help="statuses that pass, or 'any' (default: correct)")] = None,
    min_speedup: Annotated[float | None, typer.Option(help="of the last answer")] = None,
    min_coverage: Annotated[float | None, typer.Option(help="of the last answer, 0 to 1")] = None,
    without: Annotated[list[str] | None, typer.Option(help="a finding that no answer may have; repeatable")] = None,
    allow_hacks: Annotated[bool, typer.Option("--allow-hacks", help="keep trajectories that hold hacks")] = False,
    tokenizer: Annotated[str | None, typer.Option(help="count tokens with this tokenizer (default: estimate)")] = None,
    max_tokens: Annotated[int | None, typer.Option(help="longest conversation")] = None,
    no_reasoning: Annotated[bool, typer.Option("--no-reasoning", help="take <think> parts off the answers")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="print the summary as JSON and nothing else")] = False,
) -> None:
    """Parse, write, print."""
    from pydantic import ValidationError

    from drkernel.config import ConfigError
    from drkernel.solve.export import ExportFilter, tokenizer_counter
    from drkernel.solve.export import export as write
    from drkernel.solve.publish import send_table, write_dataset

    try:
        if table is not None:
            if table not in ("wandb", "trackio"):
                raise ConfigError(f"--table {table}: it is wandb or trackio")
            sent = send_table(table, project, runs)  # type: ignore[arg-type]
            print(json.dumps({"verdicts": sent}) if as_json else f"{sent} verdicts to {table}, project {project}")
        if out is None:
            if table is None:
                raise ConfigError("say where to: --out FILE.jsonl, --out FOLDER/ or --table wandb")
            raise SystemExit(0 if sent else 1)
        statuses = tuple(status) if status else ("correct",)
        wanted = ExportFilter.model_validate(
            dict(
                end=end, status=() if "any" in statuses else statuses, min_speedup=min_speedup,
                min_coverage=min_coverage, without=tuple(without or ()), allow_hacks=allow_hacks,
                max_tokens=max_tokens, keep_reasoning=not no_reasoning,
            )
        )  # fmt: skip
        count = None if tokenizer is None else tokenizer_counter(tokenizer)
        summary = (write if out.suffix else write_dataset)(runs, out, wanted, count)
    except (ConfigError, ValidationError) as error:
        terms.fail("export", terms.plain(error))
    if as_json:
        print(json.dumps(summary.model_dump()))
    else:
        about = "" if count is not None else "about "
        print(f"{out}: {summary.rows} conversations from {summary.tasks} tasks, {about}{summary.tokens:,} tokens")
        left_out = sorted(summary.left_out.items(), key=lambda item: -item[1])
        if left_out:
            print("left out: " + ", ".join(f"{reason} {number}" for reason, number in left_out))
    raise SystemExit(0 if summary.rows else 1)
