"""``drkernel store``: show, export or prune the contents of a service's store."""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from drkernel.base.files import replacing

app = typer.Typer(add_completion=False, rich_markup_mode="rich", help="Look into, export or prune a service's store.")

StoreFile = Annotated[Path, typer.Argument(help="the SQLite file of 'drkernel serve'", exists=True, dir_okay=False)]


@app.command()
def show(store: StoreFile, as_json: Annotated[bool, typer.Option("--json")] = False) -> None:
    """Counts by state and status."""
    with _open(store) as opened:
        counts = opened.counts()
    if as_json:
        print(json.dumps(counts))
        return
    for what, values in counts.items():
        print(f"{what + ':':<8}" + (", ".join(f"{k} {v}" for k, v in sorted(values.items())) or "none"))


@app.command()
def export(
    store: StoreFile,
    out: Annotated[Path, typer.Argument(help="a .jsonl or .parquet file")],
    status: Annotated[str | None, typer.Option(help="only verdicts of this status")] = None,
    task: Annotated[str | None, typer.Option(help="only tasks whose id contains this")] = None,
) -> None:
    """Write jobs with request and verdict, oldest first.

    Example: drkernel store export drkernel-store.sqlite verdicts.parquet --status correct
    """
    if out.suffix not in (".jsonl", ".parquet"):
        _usage(f"{out}: the name must end in .jsonl or .parquet")
    try:
        with _open(store) as opened, replacing(out) as temporary:
            count = _write(temporary, _rows(opened, status, task), parquet=out.suffix == ".parquet")
    except OSError as error:
        _usage(f"cannot write {out}: {error}")
    print(f"{out}: {count} jobs")


@app.command()
def prune(
    store: StoreFile, days: Annotated[float, typer.Option(min=0, help="delete finished jobs older than this")]
) -> None:
    """Delete old finished and cancelled jobs."""
    with _open(store) as opened:
        print(f"{opened.prune(days * 86400)} jobs deleted")


def _rows(opened: Any, status: str | None, task: str | None) -> Iterator[dict[str, Any]]:
    """Yield finished jobs in the order of finishing, in batches, because a store may be larger than memory."""
    last = 0
    while jobs := opened.finished_after(last):
        last = jobs[-1].sequence
        for job in jobs:
            if status not in (None, job.status) or (task or "") not in job.task_id:
                continue
            request, verdict = opened.request(job.id), opened.verdict(job.id)
            if request is None or verdict is None:  # pruned since
                continue
            yield {
                "id": job.id, "task_id": job.task_id, "device": job.device, "client": job.client,
                "submitted": job.submitted, "finished": job.finished, "status": job.status,
                "speedup": verdict.speedup.value if verdict.speedup else None, "coverage": verdict.coverage,
                "candidate": request.candidate, "reference": request.task.reference,
                "request": request.model_dump_json(), "verdict": verdict.model_dump_json(),
            }  # fmt: skip


def _write(path: Path, rows: Iterator[dict[str, Any]], parquet: bool) -> int:
    """Write the rows as a file; return how many."""
    count = 0
    if not parquet:
        with path.open("w", encoding="utf-8") as file:
            for count, row in enumerate(rows, 1):  # noqa: B007
                file.write(json.dumps(row) + "\n")
        return count
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        _usage("parquet needs pyarrow: pip install 'drkernel[data]', or export to .jsonl")
    numbers = {"submitted", "finished", "speedup", "coverage"}
    names = (
        "id", "task_id", "device", "client", "submitted", "finished", "status", "speedup", "coverage", "candidate",
        "reference", "request", "verdict",
    )  # fmt: skip
    schema = pyarrow.schema([(name, pyarrow.float64() if name in numbers else pyarrow.string()) for name in names])
    with pyarrow.parquet.ParquetWriter(path, schema) as writer:
        while portion := list(itertools.islice(rows, 1000)):
            writer.write_table(pyarrow.Table.from_pylist(portion, schema=schema))
            count += len(portion)
    return count


def _open(path: Path) -> Any:
    from drkernel.serve.jobs import StoreError
    from drkernel.serve.store import Store

    try:
        return Store(path)
    except StoreError as error:
        _usage(str(error))


def _usage(message: str) -> NoReturn:
    print(f"drkernel store: {message}", file=sys.stderr)
    raise SystemExit(2)
