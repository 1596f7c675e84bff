"""Kernels that other people wrote, on the simulated GPU: the operators of TritonBench-G, each with its own test.

    git clone https://github.com/thunlp/TritonBench
    python benchmarks/tritonbench.py TritonBench                     # prints the counts and what did not run
    python benchmarks/tritonbench.py TritonBench --write             # also writes docs/results/tritonbench.md

TritonBench-G is 184 Triton files from public repositories with test inputs. Each is run unchanged by ``drkernel sim``,
which executes every launch with all checks. Nothing of TritonBench is kept here. ``--rows`` keeps results while the
survey runs and takes them up again. Needs no GPU; about half an hour on two cores.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rich.progress import track

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "results" / "tritonbench.md"
OURS = ("UnsupportedOp", "TTIRError")
Row = dict[str, Any]
OUTCOMES = {
    "clean": "runs, nothing found",
    "memory": "its own test reads or writes out of bounds",
    "race": "programs of one launch race",
    "uninitialized": "a kernel reads memory that nothing wrote",
    "own error": "fails by itself: its Python or Triton is not valid with this torch and Triton",
    "unsupported": "the simulator does not support it",
    "timeout": "not done within the limit",
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path, help="a checkout of TritonBench")
    parser.add_argument("--rows", type=Path, help="JSONL of results; taken up again when it is there")
    parser.add_argument("--limit", type=float, default=600.0, help="seconds for one file")
    parser.add_argument("--jobs", type=int, default=2, help="files at a time")
    parser.add_argument("--match", default="", help="only files whose name contains this")
    parser.add_argument("--write", action="store_true", help=f"write {PAGE.relative_to(ROOT)}")
    arguments = parser.parse_args()
    files = sorted((arguments.directory / "data" / "TritonBench_G_v1").glob("*.py"))
    files = [file for file in files if arguments.match in file.name]
    if not files:
        parser.error(f"no files of TritonBench-G below {arguments.directory}: give the root of a checkout")
    rows = survey(files, arguments.rows, arguments.limit, arguments.jobs)
    text = page(rows)
    print(text)
    if arguments.write:
        PAGE.write_text(text, encoding="utf-8")
        print(f"wrote {PAGE}")
    return 0


def survey(files: list[Path], kept: Path | None, limit: float, jobs: int) -> list[Row]:
    """One row a file, in order."""
    known: dict[str, Row] = {}
    if kept is not None and kept.is_file():
        known = {row["file"]: row for row in map(json.loads, kept.read_text(encoding="utf-8").splitlines())}

    def one(file: Path) -> Row:
        row = known.get(file.name)
        if row is None:
            row = run(file, limit)
            if kept is not None:
                with kept.open("a", encoding="utf-8") as out:
                    out.write(json.dumps(row) + "\n")
        return row

    with ThreadPoolExecutor(jobs) as pool:
        return list(track(pool.map(one, files), "files", total=len(files)))


def run(file: Path, limit: float) -> Row:
    """Run one file in a process of its own."""
    command = [sys.executable, "-m", "drkernel", "sim", str(file), "--json"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit, check=False)
    except subprocess.TimeoutExpired:
        return {"file": file.name, "outcome": "timeout", "why": f"{limit:g} s", "launches": 0}
    try:
        report = json.loads(done.stdout)
    except ValueError:
        raise SystemExit(f"{file.name}: drkernel sim wrote no report:\n{done.stderr[-2000:]}") from None
    errors = [finding for finding in report["findings"] if finding["severity"] == "error"]
    outcome, why = judge(report["error"], errors)
    launches = sum(int(launch.get("calls", 1)) for launch in report["launches"])
    return {"file": file.name, "outcome": outcome, "why": why, "launches": launches}


def judge(error: dict[str, Any] | None, errors: list[dict[str, Any]]) -> tuple[str, str]:
    """Outcome and its reason; the first finding explains more than the exception that it caused."""
    for finding in errors:
        kind = "memory" if finding["kind"] in ("out_of_bounds", "misaligned") else finding["kind"]
        return kind if kind in OUTCOMES else "own error", finding["message"]
    if error is None:
        return "clean", ""
    message = f"{error['type']}: {error['message']}".replace("\n", " ")
    ours = error["type"] in OURS or any(name in message for name in OURS)
    return "unsupported" if ours else "own error", message


def page(rows: list[Row]) -> str:
    """The page of results."""
    counts = Counter(row["outcome"] for row in rows)
    launches = sum(row["launches"] for row in rows)
    lines = [
        "# TritonBench-G on the simulated GPU",
        "",
        f"`python benchmarks/tritonbench.py DIR --write`, {date.today()}, Triton {version('triton')}, torch "
        f"{version('torch').partition('+')[0]}, `sim:h200`, all checks on. {len(rows)} files that other people wrote, "
        f"each with its own test, run unchanged: {launches} launches recorded. Nothing was measured on a GPU.",
        "",
        "| outcome | files |",
        "|---|---:|",
        *[f"| {OUTCOMES[name]} | {counts[name]} |" for name in OUTCOMES if counts[name]],
        "",
        "An access out of bounds mostly goes unnoticed on a GPU: it falls into memory that the caching allocator holds",
        "for something else. Here it is an error with a source line. What was found in each file:",
        "",
        "| file | outcome | why |",
        "|---|---|---|",
        *[f"| {row['file']} | {row['outcome']} | {short(row['why'])} |" for row in rows if row["outcome"] != "clean"],
        "",
    ]
    return "\n".join(lines)


def short(why: str) -> str:
    """One cell of a table."""
    return why.replace("|", "\\|").replace("\n", " ").replace("<", "&lt;")[:200]


if __name__ == "__main__":
    sys.exit(main())
