"""How well the modelled times of Triton kernels and eager baselines agree with Liger-Kernel's published ones.

    git clone https://github.com/linkedin/Liger-Kernel DIR
    python benchmarks/model_vs_liger.py DIR [--run FOLDER] [--only CARD[/KERNEL]] [--memory GB] [--limit SECONDS]
                                            [--report] [--page FILE]

``DIR`` needs its history: every row of the data is run by the script and on the kernels of the revision that published
it, on the simulated card, and its device work is recorded under ``--run``. An interrupted run goes on where it stopped;
``--report`` prices what is recorded under today's model and runs nothing. Rows that do not fit ``--memory`` or
``--limit`` are counted as not run. Times are seconds between two CUDA events after an L2 flush, as ``do_bench`` has it.
"""

import hashlib
import json
import pickle
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

from drkernel.gym.judge.modelled_timing import speedup_of
from drkernel.sim.spec import get_spec
from drkernel.verdict import Profile
from liger_rows import Row, export, published, replay
from surveys import AGREEMENT, agreement, clone_with, kept_rows, markdown, parser_of, write_table

FIT_ON = "h100"
"""the only card whose rows may be looked at when a constant of the model is chosen"""
WORTH = 1.2
"""the speedup whose recognition is counted"""


@dataclass(frozen=True)
class Timed:
    """A row and its modelled seconds."""

    row: Row
    seconds: float
    profile: Profile


@dataclass(frozen=True)
class Ratio:
    """Baseline over kernel for one shape, measured and modelled."""

    kernel: Timed
    baseline: Timed

    @property
    def measured(self) -> float:
        return self.baseline.row.seconds / self.kernel.row.seconds

    @property
    def modelled(self) -> float:
        return self.baseline.seconds / self.kernel.seconds

    @property
    def inside(self) -> bool:
        """Whether the measured speedup lies in the 90% interval that a verdict would give."""
        speedup = speedup_of(self.baseline.profile, self.kernel.profile)
        return speedup is not None and speedup.low <= self.measured <= speedup.high


# ---- running


def trace_name(row: Row, data: bool) -> str:
    """File name of a row's recorded work, on a device with or without data."""
    return hashlib.sha256(row.key.encode()).hexdigest()[:20] + (".data.pkl" if data else ".pkl")


def load_answers(run: Path) -> dict[str, dict]:
    """The best answer of earlier runs to each row: without an error, and then with data rather than by guesses."""
    answers: dict[str, dict] = {}
    for answer in kept_rows(run / "rows.jsonl"):
        key = Row(**answer["row"]).key
        if key not in answers or "error" not in answer:
            answers[key] = answer
    return answers


def run_rows(folder: Path, run: Path, rows: list[Row], memory_bytes: int, limit: float) -> None:
    """Run rows on devices without data; then what went by data again on devices with it, where it fits."""
    (run / "traces").mkdir(parents=True, exist_ok=True)
    answers = load_answers(run)
    for members in groups([row for row in rows if not wants_data(answers.get(row.key, {}))]):
        run_group(folder, run, members, memory_bytes, limit, data=False)
    answers = load_answers(run)
    for members in groups([row for row in rows if wants_data(answers.get(row.key, {}))]):
        run_group(folder, run, members, memory_bytes, limit, data=True)


def wants_data(answer: dict) -> bool:
    """Whether a row went by data that was not there, or failed for want of it."""
    return not answer.get("data") and ("DependsOnData" in answer.get("error", "") or bool(answer.get("depends")))


def groups(rows: list[Row]) -> list[list[Row]]:
    """Rows by card (that of :data:`FIT_ON` first), revision and kernel, quick ones first."""
    found: dict[tuple[str, str, str], list[Row]] = defaultdict(list)
    for row in rows:
        found[row.card, row.revision, row.kernel].append(row)
    for members in found.values():
        members.sort(key=lambda row: (row.provider, row.mode, row.config, float(row.x)))
    return sorted(found.values(), key=lambda group: (group[0].card != FIT_ON, median(row.seconds for row in group)))


def run_group(folder: Path, run: Path, rows: list[Row], memory_bytes: int, limit: float, *, data: bool) -> None:
    """Run rows of one revision, kernel and card in one worker; answers are appended as they come."""
    settings = {
        "sources": str(export(folder, rows[0].revision, run)),
        "memory_bytes": memory_bytes,
        "limit": limit,
        "traces": str(run / "traces"),
        "names": {row.key: trace_name(row, data) for row in rows},
        "data": data,
    }
    started = time.monotonic()
    worker = subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name("liger_rows.py"))],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=(run / "stderr.txt").open("a"),
        text=True,
    )
    assert worker.stdin is not None and worker.stdout is not None
    worker.stdin.write("\n".join([json.dumps(settings), *(json.dumps(asdict(row)) for row in rows), ""]))
    worker.stdin.close()
    good = 0
    with (run / "rows.jsonl").open("a") as file:
        for line in worker.stdout:
            file.write(line)
            file.flush()
            good += "error" not in json.loads(line)
    worker.wait()
    kind = "with" if data else "without"
    spent = time.monotonic() - started
    print(f"{rows[0].card} {rows[0].kernel}, {kind} data: {good} of {len(rows)} rows, {spent:.0f} s", flush=True)


# ---- statistics


def ratio_line(items: list[Ratio]) -> list[str]:
    """How speedups agree, and how often "faster than 1.2 times" is right."""
    right = [(item.measured >= WORTH) == (item.modelled >= WORTH) for item in items]
    below = [item.modelled < WORTH for item in items if item.measured < WORTH]
    return [
        *agreement([item.measured for item in items], [item.modelled for item in items]),
        f"{sum(right) / len(right):.0%}", f"{sum(below)}/{len(below)}",
        f"{sum(item.inside for item in items) / len(items):.0%}",
    ]  # fmt: skip


def ratios(items: Iterable[Timed]) -> list[Ratio]:
    """Every provider of Liger's against the eager baseline of the same shape."""
    shapes: dict[tuple[str, ...], list[Timed]] = defaultdict(list)
    for item in items:
        row = item.row
        shapes[row.card, row.kernel, row.mode, row.config, row.x].append(item)
    found = []
    for members in shapes.values():
        eager = [m for m in members if m.row.provider in ("torch", "huggingface", "megatron-unfused")]
        found += [Ratio(mine, eager[0]) for mine in members if mine.row.ours and eager]
    return found


# ---- report

Table = tuple[str, list[str], list[list[str]]]
TIME_HEAD = ["", *AGREEMENT]
RATIO_HEAD = [*TIME_HEAD, "≥ 1.2 right", "below 1.2 recognised", "in the 90% interval"]
SIZES: list[tuple[str, Callable[[float], bool]]] = [
    ("", lambda t: True),
    (", ≥ 0.5 ms", lambda t: t >= 0.5e-3),
    (", 0.03 to 0.5 ms", lambda t: 0.03e-3 <= t < 0.5e-3),
    (", < 0.03 ms", lambda t: t < 0.03e-3),
]


def tables(items: list[Timed], title: str) -> list[Table]:
    """Times by side, mode and size; speedups by mode and by kernel."""
    times, speeds, kernels = [], [], []
    for side, mine in (("Triton", True), ("eager", False)):
        for mode in ("forward", "backward", "full"):
            for name, fits in SIZES:
                some = [i for i in items if i.row.ours == mine and i.row.mode == mode and fits(i.row.seconds)]
                if some and (mode == "forward" or not name):
                    both = [i.row.seconds for i in some], [i.seconds for i in some]
                    times.append([f"{side}, {mode}{name}", *agreement(*both)])
    every = ratios(items)
    for mode in ("forward", "backward", "full", ""):
        of_mode = [r for r in every if not mode or r.kernel.row.mode == mode]
        if of_mode:
            speeds.append([f"speedup, {mode or 'all modes'}", *ratio_line(of_mode)])
        large = [r for r in of_mode if min(r.kernel.row.seconds, r.baseline.row.seconds) >= 1e-4]
        if large:
            speeds.append([f"speedup, {mode or 'all modes'}, both ≥ 0.1 ms", *ratio_line(large)])
    for name in sorted({r.kernel.row.kernel for r in every}):
        for mode in ("forward", "backward", "full"):
            both_of = [r for r in every if r.kernel.row.kernel == name and r.kernel.row.mode == mode]
            if both_of:
                kernels.append([f"{name}, {mode}", *ratio_line(both_of)])
    found: list[Table] = [(f"{title}: times", TIME_HEAD, times)]
    if speeds:
        found += [(f"{title}: speedups", RATIO_HEAD, speeds), (f"{title}: by operator", RATIO_HEAD, kernels)]
    return found


def shown(table: Table) -> str:
    """A table as Markdown."""
    title, head, lines = table
    return "\n".join([f"### {title}", "", *markdown([head, *lines], len(head) - 1), ""])


def price(run: Path, answers: dict[str, dict], rows: list[Row]) -> list[Timed]:
    """Modelled seconds of all rows with recorded work."""
    items = []
    for row in rows:
        answer = answers.get(row.key)
        if answer is None or "error" in answer:
            continue
        events = pickle.loads((run / "traces" / trace_name(row, bool(answer["data"]))).read_bytes())
        line = replay(events, get_spec(row.card))
        items.append(Timed(row, line.elapsed_seconds, line.profile(f"sim:{row.card}")))
    return items


def all_tables(items: list[Timed]) -> list[Table]:
    """Tables of every card, and of the held-out ones together."""
    found = []
    for card in [FIT_ON, *sorted({item.row.card for item in items} - {FIT_ON})]:
        mine = [item for item in items if item.row.card == card]
        found += tables(mine, card) if mine else []
    held_out = [item for item in items if item.row.card != FIT_ON]
    return found + (tables(held_out, "held-out cards together")[:2] if held_out else [])


def report(found: list[Table], rows: list[Row], answers: dict[str, dict]) -> str:
    """All tables, and the rows without a time, for a terminal."""
    refused: dict[tuple[str, str], int] = defaultdict(int)
    for row in rows:
        answer = answers.get(row.key, {"error": "not run yet"})
        if "error" in answer:
            refused[row.kernel, answer["error"].partition("(")[0][:90]] += 1
    parts = [*map(shown, found), "### Rows without a modelled time\n"]
    parts += [f"- {kernel}: {count} rows: {why}" for (kernel, why), count in sorted(refused.items())]
    return "\n".join(parts) + "\n"


def write(found: list[Table], page: Path) -> None:
    """All tables beside the page, and those by card in a file of their own."""
    head = ["card", "table", "what", *RATIO_HEAD[1:]]
    full = [[*title.split(": "), *line] + [""] * (len(RATIO_HEAD) - len(line)) for title, _, ls in found for line in ls]
    cards = [line for line in full if line[2] in ("Triton, forward", "eager, forward", "speedup, all modes")]
    for name, table in (("", full), ("_cards", cards)):
        write_table(page.with_name(f"{page.stem}{name}.csv"), [head, *table])


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("folder", type=clone_with("benchmark/data", history=True), help="a clone of Liger-Kernel")
    parser.add_argument("--run", type=Path, default=Path("runs/liger"), help="where recorded work is kept")
    parser.add_argument("--only", default="", help="CARD or CARD/KERNEL")
    parser.add_argument("--memory", type=float, default=4.0, help="device memory in GB that a row may take here")
    parser.add_argument("--limit", type=float, default=60.0, help="seconds that a row may run here")
    parser.add_argument("--report", action="store_true", help="run nothing")
    parser.add_argument("--page", type=Path, help="write the tables beside this page")
    options = parser.parse_args()
    card, _, kernel = options.only.partition("/")
    rows = [r for r in published(options.folder) if card in ("", r.card) and kernel in ("", r.kernel)]
    options.run.mkdir(parents=True, exist_ok=True)
    answers = load_answers(options.run)
    if not options.report:
        missing = [
            r for r in rows
            if r.key not in answers or wants_data(answers[r.key])
        ]  # fmt: skip
        run_rows(options.folder, options.run, missing, int(options.memory * 1e9), options.limit)
        answers = load_answers(options.run)
    items = price(options.run, answers, rows)
    found = all_tables(items)
    print(report(found, rows, answers))
    if options.page:
        write(found, options.page)


if __name__ == "__main__":
    main()
