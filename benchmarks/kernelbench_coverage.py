"""How much of the public KernelBench runs here: every file loaded, gated, and graded on the simulated GPU.

    git clone https://github.com/ScalingIntelligence/KernelBench
    python benchmarks/kernelbench_coverage.py KernelBench            # prints the counts
    python benchmarks/kernelbench_coverage.py KernelBench --write    # also writes docs/results/kernelbench_coverage.md

The candidate of each task is its own reference under the name ModelNew: the judge must find its outputs right on every
call and no faster or slower than the reference, and then condemn it for launching no kernel. What differs from that is
a task that does not run here, and is listed with its reason. Gated and checked at the gate's thin sizes, timed as
published. Needs no GPU; about an hour on two cores (kernelbench_published.py checks at the judge's sizes).
"""

from __future__ import annotations

import argparse
import json
import multiprocessing as mp
import os
import re
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "results" / "kernelbench_coverage.md"
LIMIT_S = 1800
"""Wall seconds after which a task is given up; generous, so that a busy machine does not change the counts."""
Row = dict[str, Any]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path, help="a checkout of KernelBench")
    parser.add_argument("--write", action="store_true", help=f"write {PAGE.relative_to(ROOT)}")
    parser.add_argument("--rows", type=Path, help="JSONL of results; taken up again when it is there")
    parser.add_argument("--match", default="", help="only tasks whose id contains this")
    arguments = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    rows = survey(arguments.directory, arguments.match, arguments.rows)
    print(summary_table(rows))
    for row in rows:
        if row["outcome"] != "runs":
            print(f"{row['id']}: {row['outcome']}: {cell(row)}")
    if arguments.write:
        PAGE.write_text(page(rows, commit_of(arguments.directory)), encoding="utf-8")
        print(f"wrote {PAGE}")
    return 0


def survey(directory: Path, match: str, kept: Path | None) -> list[Row]:
    """A row for every task, in order; ``kept`` holds rows of an earlier start."""
    from drkernel.tasks.loaders import load_tasks

    tasks = [task for task in load_tasks(f"kernelbench:{directory}") if match in task.id]
    known: dict[str, Row] = {}
    if kept is not None and kept.is_file():
        known = {row["id"]: row for row in map(json.loads, kept.read_text().splitlines())}
    worker = Worker()
    rows = []
    for task in tasks:
        row = known.get(task.id)
        if row is None:
            started = time.monotonic()
            row = {"id": task.id, "level": task.level, **worker.ask(task.model_dump_json())}
            row["wall_s"] = round(time.monotonic() - started, 2)
            if kept is not None:
                with kept.open("a") as file:
                    file.write(json.dumps(row) + "\n")
            print(f"{row['id']}: {row['outcome']} ({row['wall_s']} s) {row['reason']}"[:160], file=sys.stderr)
        rows.append(row)
    worker.stop()
    return rows


class Worker:
    """A process that surveys tasks one by one, replaced when one takes too long or kills it."""

    def __init__(self) -> None:
        self.process: Any = None

    def ask(self, task: str) -> Row:
        """The row of one task."""
        if self.process is None:
            self.pipe, theirs = mp.get_context("spawn").Pipe()
            self.process = mp.get_context("spawn").Process(target=serve, args=(theirs,), daemon=False)
            self.process.start()
            theirs.close()
        self.pipe.send(task)
        try:
            if self.pipe.poll(LIMIT_S):
                return self.pipe.recv()
            reason = f"took more than {LIMIT_S} s"
        except EOFError:
            reason = f"ended the process that graded it (exit code {self.process.exitcode})"
        self.stop()
        return {"outcome": "too slow", "reason": reason, "changed": {}}

    def stop(self) -> None:
        """End the process."""
        if self.process is not None:
            self.process.kill()
            self.process.join()
            self.process = None


def serve(pipe: Any) -> None:
    """The worker: tasks in, rows out."""
    import torch

    from drkernel.gym.session.factory import SessionFactory
    from drkernel.task import Task

    torch.set_num_threads(1)
    with SessionFactory() as factory:
        while True:
            try:
                task = Task.model_validate_json(pipe.recv())
            except EOFError:
                return
            pipe.send(survey_one(task, factory))


def survey_one(task: Any, factory: Any) -> Row:
    """Gate, then grade its own reference."""
    from drkernel.gym.judge.judge import evaluate
    from drkernel.gym.request import EvalRequest, EvalSettings
    from drkernel.solve.prepare import why_not
    from drkernel.tasks.gate import GATED, admit_thin

    report = admit_thin(task)
    sizes = {name: list(pair) for name, pair in report.changed.items()}
    if report.error:
        outcome = "too large" if "the budget is" in report.error else "does not run"
        return {"outcome": outcome, "reason": one_line(report.error), "changed": sizes}
    settings = EvalSettings(
        profile=None, checks=2, knock_out=False, deadline_s=900, other_calls=False,
        checked_bytes=GATED.bytes, checked_flops=GATED.flops,
    )  # fmt: skip
    request = EvalRequest(task=task, candidate=twin(task.reference), settings=settings)
    for _ in range(3):  # trouble of the machine is not the task's
        verdict = evaluate(request, factory)
        if verdict.status != "infra_error":
            break
    right = (
        verdict.correctness is not None and verdict.correctness.passed_calls == verdict.correctness.checked_calls > 0
    )
    kinds = [finding.kind for finding in verdict.findings if finding.severity == "hack"]
    row: Row = {
        "changed": sizes,
        "untimed": verdict.untimed,
        "status": verdict.status,
        "findings": kinds,
        "speedup": None if verdict.speedup is None else verdict.speedup.value,
        "modelled_us": None if verdict.reference_timing is None else 1e6 * verdict.reference_timing.seconds,
    }
    gate = why_not(report)
    if gate:
        return {**row, "outcome": "ill-conditioned", "reason": gate}
    if verdict.status == "hack" and kinds == ["no_custom_kernel"] and right:
        return {**row, "outcome": "runs", "reason": ""}
    return {**row, "outcome": "not graded as itself", "reason": what_happened(verdict)}


def twin(reference: str) -> str:
    """The reference as a candidate."""
    return reference + "\n\nclass ModelNew(Model):\n    pass\n"


def what_happened(verdict: Any) -> str:
    """Why a reference did not pass as its own candidate."""
    parts = [f"status {verdict.status}"]
    if verdict.error is not None:
        parts.append(f"{verdict.error.type}: {one_line(verdict.error.message)}")
    if verdict.correctness is not None and verdict.correctness.message:
        parts.append(one_line(verdict.correctness.message))
    parts += [finding.kind for finding in verdict.findings if finding.severity == "hack"]
    return "; ".join(parts)


def one_line(text: str) -> str:
    """The first line, without addresses."""
    lines = text.strip().splitlines() or [""]
    return re.sub(r"0x[0-9a-f]+", "0x...", lines[0])[:200]


def commit_of(directory: Path) -> str:
    """The checkout's commit."""
    done = subprocess.run(["git", "-C", str(directory), "rev-parse", "HEAD"], capture_output=True, text=True)
    return done.stdout.strip()[:12] or "unknown"


OUTCOMES = ("runs", "ill-conditioned", "not graded as itself", "too large", "does not run", "too slow")


REASONS = {
    "needs files of Hugging Face, and this machine has no network": r"huggingface\.co",
    "more memory than the budget at the smallest size that its source allows": r"the budget is",
    "random: two runs on the same inputs differ": r"reference is random",
    "chaotic: rounding alone changes the answer": r"rounding flips|honest reordering",
    "accepts zeros or a constant": r"accepts .*\b(zeros|constant)\b",
    "accepts another input's answer, or one row's for all": r"accepts .*\b(stale|first_row)\b",
}
"""Reasons in words -> what the row's reason holds; the first that fits counts."""


def reason_in_words(row: Row) -> str:
    """The kind of a row's reason; the reason itself where it is of no known kind."""
    for words, pattern in REASONS.items():
        if re.search(pattern, row["reason"]):
            return words
    return row["reason"]


def reasons_table(rows: list[Row]) -> str:
    """How many files do not simply run, by outcome and reason."""
    counts = Counter((row["outcome"], reason_in_words(row)) for row in rows if row["outcome"] != "runs")
    lines = ["| files | outcome | reason |", "|---|---|---|"]
    lines += [f"| {count} | {outcome} | {words} |" for (outcome, words), count in counts.most_common()]
    return "\n".join(lines)


def listed(rows: list[Row]) -> str:
    """A row for each file that does not simply run; a level whose files all share one reason is one row."""
    lines = []
    for level in sorted({row["level"] for row in rows}):
        chosen = [row for row in rows if row["level"] == level]
        if len(chosen) > 1 and len({(row["outcome"], row["reason"]) for row in chosen} - {("runs", "")}) == 1:
            others = [row for row in chosen if row["outcome"] != "runs"]
            if len(others) == len(chosen):
                lines.append(f"| level{level}, all {len(chosen)} | {others[0]['outcome']} | {cell(others[0])} |")
                continue
        lines += [
            f"| {row['id'].removeprefix('kernelbench/')} | {row['outcome']} | {cell(row)} |"
            for row in chosen
            if row["outcome"] != "runs"
        ]
    return "\n".join(lines)


def cell(row: Row) -> str:
    """A reason, fit for a table."""
    text = row["reason"].removeprefix("ill-conditioned: ").replace("|", "/")
    return text if len(text) <= 200 else text[:197] + "..."


def summary_table(rows: list[Row]) -> str:
    """Counts by level and outcome."""
    levels = sorted({row["level"] for row in rows})
    used = [outcome for outcome in OUTCOMES if any(row["outcome"] == outcome for row in rows)]
    lines = ["| level | files | " + " | ".join(used) + " | gated thin |", "|---|---|" + "---|" * (len(used) + 1)]
    for level in [*levels, None]:
        chosen = [row for row in rows if level is None or row["level"] == level]
        counts = Counter(row["outcome"] for row in chosen)
        cells = [str(counts[outcome]) for outcome in used] + [str(sum(bool(row["changed"]) for row in chosen))]
        lines.append(f"| {level or 'all'} | {len(chosen)} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def page(rows: list[Row], commit: str) -> str:
    """The results page."""
    speeds = [row["speedup"] for row in rows if row.get("speedup") is not None]
    exact = sum(abs(speed - 1) < 0.005 for speed in speeds)
    thin = sum(bool(row["changed"]) for row in rows)
    odd = [row for row in rows if row.get("speedup") is not None and abs(row["speedup"] - 1) >= 0.005]
    unequal = "".join(f"; {row['id'].removeprefix('kernelbench/')} {row['speedup']:.2f}" for row in odd)
    return f"""# The public KernelBench, file by file

Generated by `python benchmarks/kernelbench_coverage.py KernelBench --write` at KernelBench commit `{commit}`; no GPU.

Every file is loaded, sent through the [admission gate](../tasks.md) at thin sizes (2 MiB and 40 million operations a
call where that can be reached), and graded on `sim:h200` with its own reference as the candidate: checked at those
sizes, timed as published. A task *runs* when the gate admits it and the judge finds
the reference right as its own answer on every call, and condemns it for `no_custom_kernel` and for nothing else.

{summary_table(rows)}

{thin} files are checked at smaller sizes than published.
Of {len(speeds)} references that were timed against themselves, {exact} give a modelled speedup of 1.00{unequal}.

Levels 1 to 3 hold 250 files; level 4 takes whole models from Hugging Face and was tried without a network.

*Ill-conditioned* tasks run, but accept a wrong answer: they are left out of training, and of `drkernel bench` unless
`choose.ill_conditioned=true`.

## What does not simply run, and why

{reasons_table(rows)}

File by file:

| file | outcome | reason |
|---|---|---|
{listed(rows)}
"""


if __name__ == "__main__":
    sys.exit(main())
