"""How well modelled times agree with TritonBench's published ones on an A100 (80 GB).

    git clone https://github.com/thunlp/TritonBench DIR
    python benchmarks/model_vs_tritonbench.py DIR [--run FOLDER] [--only WORD] [--limit SECONDS] [--report]
                                              [--half chosen|unused|all] [--worst N] [--page FILE]

Each file of ``performance_metrics/*/golden_metrics`` runs unchanged on a device without data, with a ``do_bench`` that
calls twice and records the second call; rows are matched with ``golden_results`` by their sizes. What the device did is
kept under ``--run``: an interrupted run goes on, and ``--report`` prices it under today's model and runs nothing.
Half of the files (by a digest of their name) may be looked at when a constant is chosen, the other half never.
"""

import builtins
import contextlib
import gc
import hashlib
import importlib.util
import json
import math
import os
import pickle
import sys
import time
import types
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from statistics import median
from typing import Any

from drkernel.gym.judge.modelled_timing import log_error, speedup_of
from drkernel.sim.spec import get_spec
from drkernel.verdict import Profile
from liger_rows import Recorder, dependences, replay
from surveys import AGREEMENT, agreement, clone_with, forked, keep_row, kept_rows, markdown, parser_of, write_table

CARD = "a100"
MOST_BYTES = 12 << 30
"""address space of a process that runs one file"""
SIDES = {"G": "Triton", "T": "PyTorch"}
PACKAGES = {"G": "TritonBench_v1", "T": "TorchBench_v1"}
ALIKE = {
    "add": "add_example vector_addition vector_addition_custom", "cos": "sin_kernel sin_computation",
    "relu": "relu_triton_kernel", "argmax": "triton_argmax",
    "matmul": "matmul_triton2 matmul_triton_autotune triton_matmul matmul_persistent_triton streamk_matmul",
}  # fmt: skip
"""files of PyTorch's side, and those of Triton's that do as much with the same inputs"""
TESTS = "#" * 100
"""begins the line below which a file has its own tests"""


@dataclass(frozen=True)
class Row:
    """One published time with what the device did for it."""

    side: str
    file: str
    place: int
    size: str
    measured: float
    events: tuple[Any, ...]

    @cached_property
    def priced(self) -> tuple[float, Profile]:
        """Modelled seconds as ``do_bench`` has them, and the profile."""
        line = replay(list(self.events), get_spec(CARD))
        if line.host <= line.device_seconds:  # calls are not waited for: the host is far ahead by then
            line = replay(list(self.events), get_spec(CARD), lead=1.0)
        return line.elapsed_seconds, line.profile(f"sim:{CARD}")

    @property
    def error(self) -> float:
        """log(model / measured)"""
        return math.log(max(self.priced[0], 1e-9) / self.measured)


def in_half(file: str, half: str) -> bool:
    """Whether a file belongs to the half: constants may be chosen by looking at rows of ``chosen`` files."""
    even = hashlib.sha256(file.encode()).digest()[0] % 2 == 0
    return half == "all" or even == (half == "chosen")


# ---- running


def run_file(folder: Path, side: str, name: str, device: Any, where: Path) -> dict[str, Any]:
    """Run one file's benchmark; its recorded work goes to ``where``."""
    import torch
    import triton

    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    sys.path[:0] = [str(folder / "performance_metrics" / f"perf_{side}")]
    package = types.ModuleType(PACKAGES[side])
    vars(package)["__path__"] = []
    sys.modules[PACKAGES[side]] = package
    sys.meta_path.insert(0, _Sources(folder / "data" / f"TritonBench_{side}_v1", PACKAGES[side]))
    recorder, kept, failures = Recorder(device.engine), list[tuple[Any, list[Any]]](), list[str]()

    def do_bench(fn: Callable[[], Any], *_: Any, quantiles: Any = None, **__: Any) -> Any:
        # what is at work is the innermost size; a failure is the row's own
        try:
            fn()
            recorder.begin()
            fn()
            events = recorder.events
        except Exception as error:
            failures.append(f"{type(error).__name__}: {str(error)[:160]}")
            raise
        kept.append((dependences(device.engine), events))
        return [float(len(kept))] * (len(quantiles) if quantiles else 1) if quantiles else float(len(kept))

    results: list[Any] = []
    triton.testing.do_bench = do_bench
    json.dump = lambda value, *_, **__: results.append(value)  # type: ignore[assignment]
    real_open = builtins.open
    builtins.open = lambda path, mode="r", *a, **k: real_open(os.devnull if "w" in mode else path, mode, *a, **k)  # type: ignore[assignment]
    module = _module(folder, side, name)
    benchmark = module.performance_metrics()
    with torch.device("cuda"):
        benchmark.get_input_tensors()
    with contextlib.suppress(Exception):
        benchmark.run_benchmark()
    builtins.open = real_open
    made = results[-1] if results else []
    rows = [(json.dumps(row["input_size"], default=_plain), *kept[int(row["ms"]) - 1]) for row in made]
    where.write_bytes(pickle.dumps(rows))
    return {"rows": len(rows), "failed": failures[:3]}


def _plain(value: Any) -> Any:
    """What the source's scripts write of a value: of a tensor its shape."""
    return list(value.shape) if hasattr(value, "shape") else str(value)


class _Sources:
    """Finds the benchmark's functions under the name by which its scripts import them, without their tests."""

    def __init__(self, folder: Path, package: str) -> None:
        self.folder, self.package = folder, package

    def find_spec(self, name: str, *_: Any) -> Any:
        file = self.folder / f"{name.rpartition('.')[2]}.py"
        if not name.startswith(self.package + ".") or not file.exists():
            return None
        cut = self.folder.parent / ".cut" / self.package / file.name
        text = file.read_text(encoding="utf-8")
        cut.parent.mkdir(parents=True, exist_ok=True)
        cut.write_text(text.partition("\n" + TESTS)[0] + "\n", encoding="utf-8")
        return importlib.util.spec_from_file_location(name, cut)


def _module(folder: Path, side: str, name: str) -> Any:
    path = folder / "performance_metrics" / f"perf_{side}" / "golden_metrics" / f"{name}_perf.py"
    spec = importlib.util.spec_from_file_location(f"{name}_perf", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run_all(folder: Path, run: Path, only: str, half: str, limit: float) -> None:
    """Run the files that have no answer yet, each in a process of its own."""
    import torch  # noqa: F401, shared by all children
    import triton  # noqa: F401

    from drkernel import sim
    from drkernel.sim.gpu.datafree import DataFree

    answers = load(run)
    with sim.device(CARD, checks="off", data_free=DataFree(), memory_bytes=1 << 46, conv_tf32=True) as device:
        for side in SIDES:
            for path in sorted((folder / "performance_metrics" / f"perf_{side}" / "golden_results").glob("*.json")):
                name = path.name.partition(".")[0]
                key = f"{side}/{name}"
                if key in answers or only not in key or not in_half(name, half):
                    continue
                started = time.monotonic()
                work = partial(run_file, folder, side, name, device, run / _trace(key))
                answer = forked(work, limit, MOST_BYTES)
                answer |= {"key": key, "took": round(time.monotonic() - started, 1)}
                keep_row(run / "files.jsonl", answer)
                print(json.dumps(answer), flush=True)


def _trace(key: str) -> str:
    return key.replace("/", "_") + ".pkl"


def load(run: Path) -> dict[str, dict[str, Any]]:
    """The last answer of each file."""
    return {answer["key"]: answer for answer in kept_rows(run / "files.jsonl")}


# ---- reading


def rows_of(folder: Path, run: Path, only: str, half: str) -> Iterator[Row]:
    """Published rows whose work is recorded, without those that went by data or have no price."""
    for side in SIDES:
        for path in sorted((folder / "performance_metrics" / f"perf_{side}" / "golden_results").glob("*.json")):
            name = path.name.partition(".")[0]
            trace = run / _trace(f"{side}/{name}")
            if only not in f"{side}/{name}" or not trace.exists() or not in_half(name, half):
                continue
            recorded: dict[str, list[Any]] = defaultdict(list)
            for size, depends, events in pickle.loads(trace.read_bytes()):
                recorded[size].append((depends, events))
            for place, entry in enumerate(json.loads(path.read_text(encoding="utf-8"))):
                mine = recorded[json.dumps(entry["input_size"])]
                if mine:
                    depends, events = mine.pop(0)
                    row = Row(side, name, place, json.dumps(entry["input_size"]), entry["ms"] * 1e-3, tuple(events))
                    if not depends and row.measured > 0 and row.priced[1].rows and not row.priced[1].unpriced:
                        yield row


def regime(row: Row) -> str:
    """What bounds most of a row's modelled time, and its size."""
    profile = row.priced[1]
    size = "< 10 µs" if row.measured < 1e-5 else "10 to 50 µs" if row.measured < 5e-5 else "≥ 50 µs"
    parts: dict[str, float] = defaultdict(float)
    for one in profile.rows:
        parts[one.bound or "latency"] += one.seconds
    bound = max(parts, key=parts.__getitem__) if parts else "host"
    return f"{bound}, {size}"


def line(name: str, rows: list[Row]) -> list[str]:
    """One row of a table."""
    files: dict[str, list[float]] = defaultdict(list)
    for row in rows:
        files[row.file].append(row.error)
    close = sum(abs(median(some)) <= math.log(1.25) for some in files.values())
    inside = sum(abs(row.error) <= log_error(row.priced[1]) for row in rows)
    both = agreement([row.measured for row in rows], [row.priced[0] for row in rows])
    return [name, *both, f"{inside / len(rows):.0%}", f"{close}/{len(files)}"]


def speedups(rows: list[Row]) -> list[list[str]]:
    """Triton over PyTorch, by operator, where both sides have the same inputs."""
    theirs = {(row.file, row.size): row for row in rows if row.side == "T"}
    groups: dict[str, list[tuple[float, float, bool]]] = {"all": []}
    for row in rows:
        for name, files in ALIKE.items():
            other = theirs.get((name, row.size))
            if row.side == "G" and row.file in files.split() and other is not None:
                measured, ratio = other.measured / row.measured, other.priced[0] / row.priced[0]
                found = speedup_of(other.priced[1], row.priced[1])
                inside = found is not None and found.low <= measured <= found.high
                for group in ("all", name):
                    groups.setdefault(group, []).append((measured, ratio, inside))
    table = [["speedup over PyTorch", *AGREEMENT, "in the 90% interval", "faster or slower: right"]]
    for name, of in groups.items():
        if len(of) > 2:
            both = agreement([one for one, _, _ in of], [one for _, one, _ in of])
            shares = sum(one for _, _, one in of) / len(of), sum((a > 1) == (b > 1) for a, b, _ in of) / len(of)
            table.append([name, *both, *(f"{share:.0%}" for share in shares)])
    return table


HEAD = ["", *AGREEMENT, "in the 90% interval", "files within 25%"]
FAR = ["file", "modelled / measured", "rows", "first row, measured", "last row, measured", "bound by"]


def report(rows: list[Row], worst: int) -> tuple[list[list[str]], list[list[str]]]:
    """Agreement by what bounds a kernel and by size; the files farthest off, by the median of their rows."""
    out = [HEAD]
    for side, name in SIDES.items():
        mine = [row for row in rows if row.side == side]
        if not mine:
            continue
        out.append(line(name, mine))
        groups: dict[str, list[Row]] = defaultdict(list)
        for row in mine:
            groups[regime(row)].append(row)
        out += [line(f"{name}, {group}", some) for group, some in sorted(groups.items()) if len(some) >= 5]
    files: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in rows:
        files[row.side, row.file].append(row)
    far = sorted(files.items(), key=lambda item: -abs(median(row.error for row in item[1])))[:worst]
    listed = [FAR]
    for (side, name), some in far:
        ends = [f"{row.measured * 1e6:.1f} µs ×{math.exp(row.error):.2f}" for row in (some[0], some[-1])]
        middle = f"×{math.exp(median(row.error for row in some)):.2f}"
        listed.append([f"{SIDES[side]} {name}", middle, f"{len(some)}", *ends, regime(some[-1])])
    return out, listed


def main() -> None:
    """Run, then report."""
    parser = parser_of(__doc__)
    parser.add_argument("folder", type=clone_with("performance_metrics"), help="a clone of TritonBench")
    parser.add_argument("--run", type=Path, default=Path("runs/tritonbench"), help="where recorded work is kept")
    parser.add_argument("--only", default="", help="files whose SIDE/NAME (G/softmax_triton1) has this in it")
    parser.add_argument("--limit", type=float, default=300.0, help="seconds that one file may take")
    parser.add_argument("--report", action="store_true", help="run nothing")
    parser.add_argument("--half", default="all", choices=["chosen", "unused", "all"])
    parser.add_argument("--worst", type=int, default=30)
    parser.add_argument("--page", type=Path, help="write the tables beside this page")
    options = parser.parse_args()
    options.run.mkdir(parents=True, exist_ok=True)
    if not options.report:
        run_all(options.folder.resolve(), options.run, options.only, options.half, options.limit)
    gc.disable()
    rows = list(rows_of(options.folder, options.run, options.only, options.half))
    tables = *report(rows, options.worst), speedups(rows)
    print(*markdown(tables[0], 7), "", *markdown(tables[1]), "", *markdown(tables[2], 7), sep="\n")
    for name, table in zip(("", "_worst", "_speedups"), tables if options.page else (), strict=False):
        write_table(options.page.with_name(f"{options.page.stem}{name}.csv"), table)


if __name__ == "__main__":
    main()
