"""How well the modelled eager times agree with KernelBench's published ones.

    git clone https://github.com/ScalingIntelligence/KernelBench DIR
    python benchmarks/model_vs_h100.py DIR [--gpu h100|h100_pcie] [--compiled]
        [--rows FILE.jsonl] [--only LEVEL/ID ...]

``--compiled`` takes the published times of ``torch.compile`` and runs TorchInductor itself for the simulated GPU (some
seconds a problem; what it cannot compile is listed). Outcomes go to ``--rows``, a line each with its date: an
interrupted run goes on, and ``--only`` names the problems to run (none: a report of what is there).

Reads the timing file and the problems of the git revision that published it (sizes changed over time), runs every
problem's module on the simulated GPU without data, as that revision times it, and prints per level Spearman's rank
correlation, the median and the 90th percentile of |log(model / measured)|, and the median relative error.
"""

import json
import math
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from drkernel.gym.judge.compiled_reference import compiled_baseline
from drkernel.sim import device
from drkernel.sim.gpu.datafree import DataFree
from drkernel.sim.spec import get_spec
from surveys import clone_with, keep_row, kept_rows, parser_of, quantile, spearman

TIMINGS = {
    "h100": "HEAD:results/timing/H100_Modal/baseline_time_torch.json",
    "h100_pcie": "HEAD:results/timing/H100_PCIe_LambdaLabs/baseline_time_torch.json",
}


@dataclass(frozen=True)
class Outcome:
    """One problem: seconds as published and as modelled, or why it could not be modelled."""

    level: int
    name: str
    measured: float
    modelled: float = math.nan
    reason: str = ""
    date: str = ""

    @property
    def number(self) -> int:
        return int(self.name.split("_")[0])

    @property
    def log_error(self) -> float:
        return math.log(self.modelled / self.measured)


def git(folder: Path, *arguments: str) -> str:
    return subprocess.run(["git", "-C", str(folder), *arguments], check=True, capture_output=True, text=True).stdout


def load_timings(folder: Path, where: str) -> tuple[str, dict[str, dict[str, Any]]]:
    """The revision that last changed the timing file (its problems are those that were timed) and its contents."""
    revision, _, path = where.partition(":")
    published = git(folder, "log", "-1", "--format=%h", revision, "--", path).strip()
    return published, json.loads(git(folder, "show", f"{revision}:{path}"))


def load_problem(folder: Path, revision: str, level: int, name: str) -> str:
    return git(folder, "show", f"{revision}:KernelBench/level{level}/{name}")


def flushes_cache(folder: Path, revision: str) -> bool:
    """Whether that revision's timing empties L2 before every call (later ones do)."""
    command = ["git", "-C", str(folder), "grep", "-q", "def clear_l2_cache", revision, "--", "src"]
    return subprocess.run(command, check=False).returncode == 0


def eager(source: str, gpu: str, flushed: bool) -> float:
    """Modelled seconds of a call after two others, between events; ``flushed``: after L2 was emptied."""
    with device(gpu, conv_tf32=True, data_free=DataFree(on_read="refuse")), torch.device("cuda"), torch.no_grad():
        torch.manual_seed(0)
        namespace: dict[str, Any] = {"__name__": "problem"}
        exec(compile(source, "problem", "exec"), namespace)
        model, inputs = namespace["Model"](*namespace["get_init_inputs"]()), namespace["get_inputs"]()
        for _ in range(2):
            model(*inputs)
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize()
        if flushed:
            torch.empty(64 << 20, dtype=torch.int32).fill_(42)
        start.record()
        model(*inputs)
        end.record()
        torch.cuda.synchronize()
        return float(start.elapsed_time(end)) * 1e-3


def compiled(source: str, gpu: str) -> float:
    """A problem's modelled seconds under TorchInductor."""
    with torch.random.fork_rng(devices=[]):
        return compiled_baseline(source, get_spec(gpu), conv_tf32=True).elapsed_seconds


def kept(file: Path | None) -> dict[tuple[int, str], Outcome]:
    """The last outcome of each problem in a file of rows."""
    outcomes = [Outcome(**row) for row in kept_rows(file)]
    return {(item.level, item.name): item for item in outcomes}


def run(
    folder: Path, gpu: str, where: str, rows: Path | None, only: list[str] | None, inductor: bool
) -> tuple[str, list[Outcome]]:
    """The published revision, and the outcomes of problems that run (``only``: LEVEL/ID) or are kept."""
    revision, timings = load_timings(folder, where)
    known = kept(rows)
    flushed = flushes_cache(folder, revision)
    outcomes: list[Outcome] = []
    for level_name, problems in timings.items():
        level = int(level_name.removeprefix("level"))
        for name, entry in problems.items() if level <= 3 else ():
            before = known.get((level, name))
            if before is not None:
                outcomes.append(before)
            elif only is not None and f"{level}/{name.split('_')[0]}" not in only:
                continue
            elif not entry:
                outcomes.append(Outcome(level, name, math.nan, reason="no published time"))
            else:
                source = load_problem(folder, revision, level, name)
                outcomes.append(model_one(source, level, name, entry["mean"] * 1e-3, gpu, flushed, inductor))
                keep_row(rows, asdict(outcomes[-1]))
    return revision, outcomes


def model_one(source: str, level: int, name: str, measured: float, gpu: str, flushed: bool, inductor: bool) -> Outcome:
    """Model one problem; ``measured`` are its published seconds."""
    date = time.strftime("%Y-%m-%d")
    try:
        modelled = compiled(source, gpu) if inductor else eager(source, gpu, flushed)
    except Exception as error:
        reason = f"{type(error).__name__}: {str(error).splitlines()[0][:140]}"
        return Outcome(level, name, measured, reason=reason, date=date)
    return Outcome(level, name, measured, modelled, date=date)


def summary(outcomes: list[Outcome]) -> dict[str, float]:
    done = [item for item in outcomes if not item.reason]
    errors = [abs(item.log_error) for item in done]
    relative = [abs(item.modelled / item.measured - 1) for item in done]
    return {
        "problems": len(done),
        "spearman": spearman([item.modelled for item in done], [item.measured for item in done]),
        "median_log": quantile(errors, 0.5),
        "p90_log": quantile(errors, 0.9),
        "median_relative": quantile(relative, 0.5),
        "bias": math.exp(quantile([item.log_error for item in done], 0.5)),
    }


WORST = 20
"""rows that are printed of those farthest off"""


def report(outcomes: list[Outcome]) -> None:
    print(f"{'':14s} problems  spearman  median|log|  p90|log|  median error  median ratio")
    for level in sorted({item.level for item in outcomes}):
        for label, chosen in (
            (f"level {level}", lambda number: True),
            ("  even ids", lambda number: number % 2 == 0),
            ("  odd ids", lambda number: number % 2 == 1),
        ):
            some = [item for item in outcomes if item.level == level and chosen(item.number)]
            if sum(not item.reason for item in some) < 3:
                continue
            row = summary(some)
            print(
                f"{label:14s} {row['problems']:8.0f}  {row['spearman']:8.3f}  {row['median_log']:11.3f}  "
                f"{row['p90_log']:8.3f}  {row['median_relative']:11.1%}  {row['bias']:12.2f}"
            )
    done = sorted((item for item in outcomes if not item.reason), key=lambda item: -abs(item.log_error))
    print(f"\nworst {min(WORST, len(done))} (modelled / published):")
    for item in done[:WORST]:
        print(
            f"  {item.level}/{item.name[:56]:56s} {item.measured * 1e3:9.3f} ms published "
            f"{item.modelled * 1e3:9.3f} ms modelled  x{item.modelled / item.measured:.2f}"
        )
    for item in outcomes:
        if item.reason:
            print(f"  not modelled: {item.level}/{item.name}: {item.reason}")


def main() -> int:
    parser = parser_of(__doc__)
    parser.add_argument("dir", type=clone_with("results/timing", history=True), help="a git clone of KernelBench")
    parser.add_argument("--gpu", default="h100", help="spec to model with")
    parser.add_argument("--compiled", action="store_true", help="the published torch.compile times instead of eager")
    parser.add_argument("--timing", help="REVISION:PATH of another timing file in the checkout")
    parser.add_argument("--rows", type=Path, help="keep outcomes in this file, a line each")
    parser.add_argument("--only", nargs="*", metavar="LEVEL/ID", help="run these problems alone")
    options = parser.parse_args()
    where = options.timing or TIMINGS.get(options.gpu)
    if where and options.compiled and not options.timing:
        where = where.replace("_torch.json", "_torch_compile_inductor_default.json")
    if where is None:
        parser.error(f"no published timings for {options.gpu}; give --timing REVISION:PATH")
    start = time.perf_counter()
    revision, outcomes = run(options.dir, options.gpu, where, options.rows, options.only, options.compiled)
    print(f"{where} against spec {options.gpu}; problems of revision {revision}; {time.perf_counter() - start:.0f} s\n")
    report(outcomes)
    return 0


if __name__ == "__main__":
    sys.exit(main())
