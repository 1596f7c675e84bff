"""Modelled times of data-free runs against those of runs that execute everything.

    python benchmarks/extrapolation.py                        # prints the table
    python benchmarks/extrapolation.py --out docs/results/extrapolation.csv

Every kernel (``benchmarks/extrapolation_kernels/``) runs at a size that can still be executed: on a simulated GPU with
data, on one without (as the judge times published sizes), and on one without that may run only a small sample of the
programs of any launch, which is what happens at sizes hundreds of times as large. The error is that of the modelled
device time against the executed one. The speed ratio is wall time of the executed run over that of the data-free run,
both with compiled kernels.
"""

import statistics
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from drkernel.sim.gpu.datafree import DataFree
from drkernel.sim.script import device
from extrapolation_kernels import Case, cases
from surveys import parser_of, write_table
from ttir_executor.skeleton.measure import SampleSettings

SAMPLED = SampleSettings(full_sectors=1e5, sample_sectors=1e5)
"""a launch of more than a 600th of what usually runs in full is sampled"""
WITHIN, USUALLY = 0.05, 0.01


@dataclass(frozen=True)
class Row:
    """One kernel's three runs."""

    case: Case
    programs: int
    looked_at: int
    """programs whose reads the sampled run looked at"""
    executed: float
    """modelled device seconds"""
    free: float
    sampled: float
    stated: float
    """error that the sampled run states of itself"""
    seconds: tuple[float, float, float]
    """wall time of each run"""

    @property
    def errors(self) -> tuple[float, float]:
        """Relative errors of the data-free and of the sampled time."""
        return abs(self.free / self.executed - 1), abs(self.sampled / self.executed - 1)


def modelled(case: Case, settings: DataFree | None) -> tuple[float, float, int, int, float]:
    """(device seconds, wall seconds, programs, looked at, stated error) of one run."""
    with device("h100", checks="off", data_free=settings) as dev:
        case.run(*case.warm)
        dev.profile()
        dev.reset_counters()
        started = time.perf_counter()
        case.run(*case.size)
        rows = [row for row in dev.profile().rows if row.owner == "custom"]
        wall = time.perf_counter() - started
        programs = looked = 0
        error = 0.0
        if settings is not None:
            assert not dev.engine.counters.dependences, dev.engine.counters.dependences
            programs, looked = (sum(getattr(one, name) for one in dev.launches) for name in ("programs", "looked_at"))
            error = max(one.error for one in dev.launches)
    return sum(row.seconds for row in rows), wall, programs, looked, error


def measure(case: Case) -> Row:
    """All three runs of one kernel."""
    executed, first, *_ = modelled(case, None)
    free, second, *_ = modelled(case, DataFree())
    sampled, third, programs, looked, stated = modelled(case, DataFree(sample=SAMPLED))
    return Row(case, programs, looked, executed, free, sampled, stated, (first, second, third))


HEAD = ["kernel", "what is hard", "size", "programs (looked at)", "executed", "data-free", "sampled (stated)", "speed"]


def cells(row: Row) -> list[str]:
    """The cells below :data:`HEAD`."""
    plain, sampled = row.errors
    free, part = (row.seconds[0] / seconds for seconds in row.seconds[1:])
    return [
        row.case.name, row.case.kind, " × ".join(map(str, row.case.size)), f"{row.programs:,} ({row.looked_at:,})",
        f"{row.executed * 1e6:.1f} µs", f"{plain:.2%}", f"{sampled:.2%} ({row.stated:.2%})",
        f"{free:.1f}×, {part:.1f}×",
    ]  # fmt: skip


def summary(rows: list[Row]) -> list[str]:
    """The summary over all kernels."""
    lines = []
    for number, name in enumerate(("data-free", "sampled")):
        errors = [row.errors[number] for row in rows]
        ratios = [row.seconds[0] / row.seconds[number + 1] for row in rows]
        lines.append(
            f"- {name}: within {WITHIN:.0%} in {sum(e <= WITHIN for e in errors)} of {len(rows)}, within {USUALLY:.0%} "
            f"in {sum(e <= USUALLY for e in errors)}; largest error {max(errors):.2%}; median speed ratio "
            f"{statistics.median(ratios):.1f}×"
        )
    return lines


def main() -> int:
    parser = parser_of(__doc__)
    parser.add_argument("--out", type=Path, help="write the table to this file")
    options = parser.parse_args()
    rows = []
    for case in cases():
        rows.append(measure(case))
        print(*cells(rows[-1]), sep=" | ", flush=True)
    print("\n".join(summary(rows)))
    if options.out:
        write_table(options.out, [HEAD, *map(cells, rows)])
    return 0 if all(max(row.errors) <= WITHIN for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
