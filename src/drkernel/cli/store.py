"""``drkernel store``: what a service's store holds, exported or pruned."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

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
    rows = []
    with _open(store) as opened:
        for job in reversed(opened.find(state="done", status=status, task=task, limit=1 << 31)):
            request, verdict = opened.request(job.id), opened.verdict(job.id)
            assert request is not None and verdict is not None
            rows.append(
                {
                    "id": job.id, "task_id": job.task_id, "device": job.device, "client": job.client,
                    "submitted": job.submitted, "finished": job.finished, "status": job.status,
                    "speedup": verdict.speedup.value if verdict.speedup else None, "coverage": verdict.coverage,
                    "candidate": request.candidate, "reference": request.task.reference,
                    "request": request.model_dump_json(), "verdict": verdict.model_dump_json(),
                }
            )  # fmt: skip
    temporary = out.with_name(out.name + ".tmp")
    try:
        _write(temporary, rows, parquet=out.suffix == ".parquet")
        os.replace(temporary, out)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        _usage(f"cannot write {out}: {error}")
    print(f"{out}: {len(rows)} jobs")


@app.command()
def prune(
    store: StoreFile, days: Annotated[float, typer.Option(min=0, help="delete finished jobs older than this")]
) -> None:
    """Delete old finished and cancelled jobs."""
    with _open(store) as opened:
        print(f"{opened.prune(days * 86400)} jobs deleted")


def _write(path: Path, rows: list[dict[str, Any]], parquet: bool) -> None:
    if not parquet:
        with path.open("w", encoding="utf-8") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)
        return
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        _usage("parquet needs pyarrow: pip install 'drkernel[data]', or export to .jsonl")
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)


def _open(path: Path) -> Any:
    from drkernel.serve.store import Store, StoreError

    try:
        return Store(path)
    except StoreError as error:
        _usage(str(error))


def _usage(message: str) -> NoReturn:
    print(f"drkernel store: {message}", file=sys.stderr)
    raise SystemExit(2)
