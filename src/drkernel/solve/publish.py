"""Verdicts and conversations of runs for other people's tools: a Hugging Face dataset folder, tables of trackers."""

from __future__ import annotations

import importlib
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

from drkernel.config import ConfigError
from drkernel.solve.bench import Bench, read_bench
from drkernel.solve.export import CountTokens, ExportFilter, ExportSummary, export

Tracker = Literal["trackio", "wandb"]


def verdict_rows(runs: Sequence[Path]) -> Iterator[dict[str, Any]]:
    """Yield a flat row for each graded answer of bench and solve runs; None stands for what a verdict does not have."""
    for run in runs:
        yield from _rows(run.name, read_bench(run))


def _rows(name: str, bench: Bench) -> Iterator[dict[str, Any]]:
    for task in bench.tasks:
        for sample in range(bench.config.samples):
            for turn in bench.played.turns((task.id, sample)):
                verdict = turn.verdict
                yield {
                    "run": name,
                    "model": bench.model,
                    "task_id": task.id,
                    "level": task.level,
                    "sample": sample,
                    "turn": turn.id,
                    "status": turn.status,
                    "reward": turn.reward,
                    "speedup": turn.speedup,
                    "speedup_low": None if verdict.speedup is None else verdict.speedup.low,
                    "speedup_high": None if verdict.speedup is None else verdict.speedup.high,
                    "coverage": turn.coverage,
                    "seconds": None if verdict.timing is None else verdict.timing.seconds,
                    "timing": None if verdict.timing is None else verdict.timing.kind,
                    "device": verdict.device,
                    "checked_at": turn.checked_at,
                    "timed_at": turn.timed_at,
                    "untimed": verdict.untimed,
                    "findings": " ".join(turn.findings),
                    "tokens": turn.tokens,
                    "candidate": turn.code,
                }


def write_dataset(
    runs: Sequence[Path], out: Path, terms: ExportFilter = ExportFilter(), count: CountTokens | None = None
) -> ExportSummary:
    """Write a folder that ``datasets.load_dataset`` and the Hugging Face hub read, with its card.

    Its two configurations are ``conversations``, which are filtered as by :func:`~drkernel.solve.export.export`, and
    ``verdicts``, one for each answer. Raises :class:`ConfigError` as that does.
    """
    summary = export(runs, out / "conversations" / "train.parquet", terms, count)
    import pyarrow
    import pyarrow.parquet

    rows = list(verdict_rows(runs))
    (out / "verdicts").mkdir(exist_ok=True)
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), out / "verdicts" / "train.parquet")
    (out / "README.md").write_text(_card(rows, summary, terms), encoding="utf-8")
    return summary


def send_table(tool: Tracker, project: str, runs: Sequence[Path]) -> int:
    """Log the verdicts of each run as a table of a tracker, and return how many there are.

    Raises :class:`ConfigError` when the tracker's package is not installed.
    """
    try:
        module = importlib.import_module(tool)
    except ImportError as error:
        raise ConfigError(f"{tool} is not installed: pip install 'drkernel[{tool}]'") from error
    sent = 0
    for run in runs:
        bench = read_bench(run)
        rows = list(_rows(run.name, bench))
        if not rows:
            continue
        config = json.loads(bench.config.model_dump_json())
        tracked = module.init(project=project, name=run.name, config=config)
        tracked.log({"verdicts": module.Table(columns=list(rows[0]), data=[list(row.values()) for row in rows])})
        tracked.finish()
        sent += len(rows)
    return sent


def _card(rows: Sequence[dict[str, Any]], summary: ExportSummary, terms: ExportFilter) -> str:
    """The dataset's page: what the hub reads between the dashes, what people read below."""
    statuses = Counter(row["status"] for row in rows)
    models, devices = (", ".join(sorted({row[name] for row in rows})) for name in ("model", "device"))
    modelled = any(row["timing"] == "modelled" for row in rows)
    filters = terms.model_dump_json(exclude_defaults=True)
    tasks = len({row["task_id"] for row in rows})
    counted = ", ".join(f"{n:,} {name}" for name, n in statuses.most_common())
    return f"""---
configs:
- config_name: conversations
  default: true
  data_files: conversations/train.parquet
- config_name: verdicts
  data_files: verdicts/train.parquet
tags:
- code
- triton
- gpu-kernels
---

# GPU kernels and their verdicts

Answers of {models or "no model"} to {tasks} tasks, graded by drkernel on {devices or "no device"}.
{"Times and speedups are **modelled** by a simulated GPU, not measured." if modelled else ""}

- `conversations`: {summary.rows:,} conversations ({summary.tokens:,} tokens) as the model saw them, each ending with an
  answer; filters other than the defaults: `{filters}`.
- `verdicts`: all {len(rows):,} graded answers: {counted}.
"""
