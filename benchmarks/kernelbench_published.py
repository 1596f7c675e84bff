"""KernelBench at its published sizes on a machine without a GPU: every problem timed, or refused with a reason.

    git clone https://github.com/ScalingIntelligence/KernelBench
    pip install einops                                             # two files of level 3 need it
    python benchmarks/kernelbench_published.py KernelBench --rows /tmp/rows.jsonl
    python benchmarks/kernelbench_published.py KernelBench --rows /tmp/rows.jsonl --write

All problems of levels 1 to 3 are graded with the reference itself as the candidate (``ModelNew`` is ``Model``) by a
pool with default settings: checked at sizes that fit this machine, timed at the published ones on a simulated H200. A
reference has no kernel of its own: its verdict has to be that and nothing else, and its time is the one that the judge
holds answers against. A row a grade goes to ``--rows``, and what is there is not graded again. Memory is that of all
processes together (pages that no file backs, those in common once, several times a second), beyond what they hold
after a first small grade.
"""

import contextlib
import os
import statistics
import subprocess
import sys
import threading
import time
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil

from drkernel.task import TaskError
from surveys import keep_row, kept_rows, markdown, parser_of, write_table

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "results" / "kernelbench_published.md"
LEVELS = (1, 2, 3)
MOST_BYTES = 2 << 30
"""what grading may hold beyond its start"""
MOST_SECONDS, MEDIAN_SECONDS = 60.0, 5.0
SAMPLED_EVERY_S = 0.25
REPLACED_ABOVE = 512 << 20
"""a pool that holds so much more than at its start between grades (kept results) is replaced by a fresh one"""
NO_KERNEL = "no_custom_kernel"
OUTCOMES = ("timed", "refused", "killed")
Row = dict[str, Any]


# ---- memory


def family() -> list[psutil.Process]:
    """This process and all its descendants."""
    own = psutil.Process()
    return [own, *own.children(recursive=True)]


def held(pid: int) -> int:
    """Bytes of memory that no file backs: a process's own, and its share of what it has in common with others."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) << 10 for line in lines if line.startswith(("Pss_Anon:", "Pss_Shmem:")))


def processor_seconds() -> float:
    """Seconds of processor time that this process and its descendants, dead ones included, have taken."""
    seconds = 0.0
    for process in family():
        with contextlib.suppress(psutil.Error):
            seconds += sum(process.cpu_times()[:4])
    return seconds


class Watch(threading.Thread):
    """The largest memory of this process and its descendants since it was last asked."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.largest = 0
        self.own_seconds = 0.0
        """processor time that watching has taken"""

    def run(self) -> None:
        """Sample for as long as the process lives."""
        while True:
            self.largest = max(self.largest, self.now())
            self.own_seconds = time.thread_time()
            time.sleep(SAMPLED_EVERY_S)

    @staticmethod
    def now() -> int:
        """Bytes held at this moment."""
        return sum(held(process.pid) for process in family())


# ---- grading


class Grader:
    """A pool of one slot, and what it held after its first grade."""

    def __init__(self, watch: Watch) -> None:
        from drkernel.gym.pools.local import LocalPool

        self.watch = watch
        self.pool = LocalPool(memory_bytes=MOST_BYTES).warm()
        self._small_grade()
        time.sleep(0.5)
        self.start = watch.now()

    def _small_grade(self) -> None:
        from drkernel.gym.request import EvalRequest
        from drkernel.tasks.loaders import builtin_task

        task = builtin_task("level1/relu")
        self.pool.submit(EvalRequest(task=task, candidate=twin(task.reference))).result()

    def grade(self, task: Any) -> Row:
        """The verdict on a task's own reference in short, with its wall time and largest memory."""
        from drkernel.gym.request import EvalRequest, EvalSettings

        settings = EvalSettings(deadline_s=300).for_task(task)
        self.watch.largest = self.watch.now()
        started, worked = time.monotonic(), processor_seconds() - self.watch.own_seconds
        request = EvalRequest(task=task, candidate=twin(task.reference), settings=settings)
        verdict = self.pool.submit(request).result()
        row = shortened(verdict)
        if row["right"] and row["findings"] == [NO_KERNEL]:
            row |= reference_time(task)
        wall = time.monotonic() - started
        largest = max(self.watch.largest, self.watch.now())
        return {
            **row,
            "wall_s": round(wall, 2),
            "cpu_s": round(processor_seconds() - self.watch.own_seconds - worked, 2),
            "peak_mb": round((largest - self.start) / 2**20),
        }

    def is_stale(self) -> bool:
        """Whether the memory kept between grades has grown."""
        return self.watch.now() - self.start > REPLACED_ABOVE

    def close(self) -> None:
        """End all its processes."""
        self.pool.close_now()


def twin(reference: str) -> str:
    """The reference as a candidate."""
    return reference + "\n\nclass ModelNew(Model):\n    pass\n"


def reference_time(task: Any) -> Row:
    """The time of a task's reference at its own sizes, as the judge models it for every answer; or why it has none."""
    from drkernel.gym.judge.modelled_timing import reference_profile_at
    from drkernel.sim.spec import get_spec
    from drkernel.task import TaskError
    from drkernel.tasks.reference import load_reference

    try:
        profile = reference_profile_at(get_spec("h200"), load_reference(task.reference), conv_tf32=False)
    except TaskError as error:
        return {"outcome": "refused", "reason": one_line(str(error))}
    if profile.unpriced:
        return {"outcome": "refused", "reason": f"no price for {', '.join(profile.unpriced)}"}
    return {"outcome": "timed", "reason": "", "reference_us": 1e6 * profile.elapsed_seconds}


def shortened(verdict: Any) -> Row:
    """The fields of a verdict that the table needs."""
    own = verdict.timed_at is not None and not verdict.timed_at.changed
    timed = own and verdict.timing is not None
    correctness = verdict.correctness
    right = correctness is not None and 0 < correctness.checked_calls == correctness.passed_calls
    reason = verdict.untimed or (verdict.error.message if verdict.error is not None else "")
    if not reason and not timed:
        reason = "; ".join(f"{finding.kind}: {finding.message}" for finding in verdict.findings)
        reason = reason or (correctness.message if correctness is not None and correctness.message else verdict.status)
    return {
        "status": verdict.status,
        "outcome": "timed" if timed else "refused" if verdict.status != "infra_error" else "killed",
        "right": right,
        "reason": "" if timed else one_line(reason),
        "findings": [finding.kind for finding in verdict.findings if finding.severity == "hack"],
        "checked": {} if verdict.checked_at is None else {k: list(v) for k, v in verdict.checked_at.changed.items()},
        "reference_us": None if verdict.reference_timing is None else 1e6 * verdict.reference_timing.seconds,
        "judged_s": round(verdict.seconds, 2),
        "phases": {name: round(seconds, 2) for name, seconds in verdict.phases.items()},
    }


def one_line(text: str) -> str:
    """A reason in a line."""
    return " ".join(text.split())[:300]


def survey(directory: Path, kept: Path, match: str) -> list[Row]:
    """A row for every grade, in order; those in ``kept`` are taken as they are."""
    from drkernel.tasks.loaders import load_tasks

    tasks = [task for task in load_tasks(f"kernelbench:{directory}") if task.level in LEVELS and match in task.id]
    known = {row["id"]: row for row in kept_rows(kept)}
    watch, code = Watch(), commit_of(ROOT)
    watch.start()
    grader: Grader | None = None
    rows = []
    for number, task in enumerate(tasks):
        row = known.get(task.id)
        if row is None:
            if grader is not None and grader.is_stale():
                grader.close()
                grader = None
            grader = grader or Grader(watch)
            row = {"id": task.id, "level": task.level, **grader.grade(task), "code": code}
            keep_row(kept, row)
            print(
                f"{number + 1}/{len(tasks)} {task.id}: {row['outcome']} in {row['wall_s']} s, "
                f"{row['peak_mb']} MB, {row['reason'] or row['status']}"[:180],
                flush=True,
            )
        rows.append(row)
    if grader is not None:
        grader.close()
    return rows


# ---- the page


def summary(rows: list[Row]) -> list[str]:
    """Counts, times and memory."""
    counts = Counter(row["outcome"] for row in rows)
    walls, busy = ([row[name] for row in rows] for name in ("wall_s", "cpu_s"))
    spans = [f"{statistics.median(some):.1f}, {max(some):.1f}" for some in (walls, busy)]
    head = ["grades", *OUTCOMES, "wall s: median, longest", "processor s: median, longest", "peak MB"]
    shown = [len(rows), *(counts[name] for name in OUTCOMES), *spans, max(row["peak_mb"] for row in rows)]
    return markdown([head, [str(one) for one in shown]])


def breaches(rows: list[Row]) -> list[str]:
    """Grades beyond what is allowed."""
    found = []
    for row in rows:
        beyond = []
        if row["outcome"] == "killed":
            beyond.append(f"killed: {row['reason']}")
        if row["wall_s"] > MOST_SECONDS:
            beyond.append(f"{row['wall_s']} s")
        if row["peak_mb"] > MOST_BYTES >> 20:
            beyond.append(f"{row['peak_mb']} MB")
        if beyond:
            found.append(f"- {row['id'].removeprefix('kernelbench/')}: {', '.join(beyond)}")
    walls = [row["wall_s"] for row in rows]
    if walls and statistics.median(walls) > MEDIAN_SECONDS:
        found.append(f"- the median grade takes {statistics.median(walls):.1f} s, more than {MEDIAN_SECONDS} s")
    return found


def listed(rows: list[Row]) -> list[list[str]]:
    """A row a problem."""
    lines = [["problem", "checked at", "reference, modelled", "wall s", "processor s", "peak MB"]]
    for row in rows:
        checked = ", ".join(f"{name} {pair[1]} of {pair[0]}" for name, pair in row["checked"].items()) or "own sizes"
        time_of = f"{row['reference_us']:.0f} µs" if row["outcome"] == "timed" else f"{row['outcome']}: {row['reason']}"
        spent = [str(row[name]) for name in ("wall_s", "cpu_s", "peak_mb")]
        lines.append([row["id"].removeprefix("kernelbench/"), checked, time_of, *spent])
    return lines


def page(rows: list[Row], commit: str, machine: str) -> str:
    """The results page, its table beside it."""
    today = datetime.now(UTC).date().isoformat()
    timed, refused = (sum(row["outcome"] == kind for row in rows) for kind in ("timed", "refused"))
    beyond = breaches(rows)
    limits = (
        f"Limits: none killed, {MOST_BYTES >> 20} MB, {MOST_SECONDS:.0f} s each, {MEDIAN_SECONDS:.0f} s in the median: "
    )
    return "\n".join(
        [
            "# KernelBench at its published sizes",
            "",
            "Can every problem of KernelBench be graded at its published size on a machine without a GPU? "
            f"**{timed} of {len(rows)} are timed at published sizes on a simulated H200; {refused} are refused "
            f"with a reason.**",
            "",
            f"`python benchmarks/kernelbench_published.py KernelBench --rows ROWS --write`, {today}, KernelBench at "
            f"{commit}; {machine}. Each problem of levels 1 to 3 is graded with the reference as the candidate by a "
            "pool with default settings. Memory is that of all processes beyond a first small grade.",
            "",
            *summary(rows),
            "",
            limits + ("kept." if not beyond else "not kept by"),
            *beyond,
            "",
            write_table(PAGE.with_suffix(".csv"), listed(rows)),
            "",
        ]
    )


def commit_of(directory: Path) -> str:
    """The checkout's commit, where it is one."""
    done = subprocess.run(["git", "-C", str(directory), "rev-parse", "HEAD"], capture_output=True, text=True)
    return done.stdout.strip()[:12] or "an unknown commit"


def main() -> int:
    parser = parser_of(__doc__)
    parser.add_argument("directory", type=Path, help="a checkout of KernelBench")
    parser.add_argument("--rows", type=Path, required=True, help="JSONL of results; taken up again when it is there")
    parser.add_argument("--match", default="", help="only problems whose id contains this")
    parser.add_argument("--machine", default=f"{os.cpu_count()} cores", help="cores and load, in words for the page")
    parser.add_argument("--write", action="store_true", help=f"write {PAGE.relative_to(ROOT)}")
    arguments = parser.parse_args()
    try:
        rows = survey(arguments.directory, arguments.rows, arguments.match)
    except TaskError as error:
        parser.error(str(error))
    print("\n".join([*summary(rows), *breaches(rows)]))
    if arguments.write:
        PAGE.write_text(page(rows, commit_of(arguments.directory), arguments.machine), encoding="utf-8")
    return 1 if breaches(rows) else 0


if __name__ == "__main__":
    sys.exit(main())
