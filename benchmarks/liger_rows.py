"""Rows of Liger-Kernel's published benchmark data, and what the package looked like when each was published.

Every row of ``benchmark/data/all_benchmark_data.csv`` is run as its authors ran it: by the benchmark script, and on
the kernels, of the git revision that added the row. ``python liger_rows.py`` is the worker that ``model_vs_liger.py``
starts for each (revision, kernel, card): it reads rows as JSON lines and answers with one line per row.
"""

import csv
import importlib
import io
import json
import os
import pickle
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from surveys import forked

CARDS = {
    "NVIDIA H100 80GB HBM3": "h100",
    "NVIDIA A100-SXM4-80GB": "a100",
    "NVIDIA B200": "b200",
    "NVIDIA H100 PCIe": "h100_pcie",
    "NVIDIA GeForce RTX 3090": "rtx3090",
    "NVIDIA GeForce RTX 4090": "rtx4090",
}
"""GPUs of the data that have a spec here"""
AUTOGRAD_SECONDS = {"function": 25e-6, "backward": 20e-6}
"""host time of one Python function of autograd in one direction, and of starting the engine's thread"""
DATA = "benchmark/data/all_benchmark_data.csv"
ALIASES = {
    "distill_cosine_loss": "distill_cosine_loss",
    "fused_linear_cpo_loss": "cpo_loss",
    "fused_linear_orpo_loss": "orpo_loss",
    "fused_linear_simpo_loss": "simpo_loss",
    "fused_linear_grpo_loss_sequence": "grpo_loss",
    "fused_linear_grpo_loss_token": "grpo_loss",
    "distill_jsd_loss": "distill_jsd_loss",
}
"""kernel names of the data whose script is named otherwise"""


@dataclass(frozen=True)
class Row:
    """One published time."""

    card: str
    kernel: str
    provider: str
    mode: str
    x_name: str
    x: str
    config: str
    seconds: float
    low: float
    high: float
    revision: str

    @property
    def key(self) -> str:
        """The key of the row."""
        return "|".join((self.card, self.kernel, self.mode, self.config, f"{self.x_name}={self.x}", self.provider))

    @property
    def ours(self) -> bool:
        """Whether Liger's own kernels were timed, not a baseline."""
        return self.provider.startswith("liger")

    @property
    def script(self) -> str:
        """Module name of the benchmark script."""
        return "benchmark_" + ALIASES.get(self.kernel, self.kernel)


def git(folder: Path, *arguments: str) -> bytes:
    """Output of a git command in ``folder``."""
    return subprocess.run(["git", "-C", str(folder), *arguments], check=True, capture_output=True).stdout


def published(folder: Path) -> list[Row]:
    """Times of the cards in :data:`CARDS`, each with the revision that last changed its line."""
    blame = git(folder, "blame", "-s", "-l", "HEAD", "--", DATA).decode().splitlines()
    revisions = [line.split()[0].lstrip("^") for line in blame]
    text = git(folder, "show", f"HEAD:{DATA}").decode()
    rows = []
    for revision, entry in zip(revisions[1:], csv.DictReader(io.StringIO(text)), strict=True):
        card = CARDS.get(entry["gpu_name"])
        if card is None or entry["metric_name"] != "speed":
            continue
        seconds, low, high = (float(entry[f"y_value_{q}"] or "nan") * 1e-3 for q in (50, 20, 80))
        if seconds != seconds:
            continue
        x = entry["x_value"]
        rows.append(
            Row(card, entry["kernel_name"], entry["kernel_provider"], entry["kernel_operation_mode"], entry["x_name"],
                x.removesuffix(".0"), entry["extra_benchmark_config_str"], seconds, low, high, revision)
        )  # fmt: skip
    return rows


def export(folder: Path, revision: str, where: Path) -> Path:
    """Sources, benchmark scripts and tests of one revision as files; returns their folder."""
    target = where / revision[:12]
    if not target.exists():
        archive = git(folder, "archive", revision, "src", "benchmark/scripts", "test", ":(exclude)test/resources")
        partial = target.with_suffix(".partial")
        with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
            tar.extractall(partial, filter="data")
        partial.rename(target)
    return target


# ---- the worker


def _as_it_was() -> None:
    """Small things that scripts of past years find changed in the packages of today."""
    import torch.distributed.tensor  # noqa: F401, used as an attribute
    from transformers.models.llama4 import modeling_llama4

    embedding: Any = modeling_llama4.Llama4TextRotaryEmbedding
    original = embedding.__init__

    def init(self: Any, config: Any, device: Any = None, **rest: Any) -> None:
        original(self, config, **rest)
        self.to(device)

    embedding.__init__ = init


class Recorder:
    """Everything that the device did in one call, in order, so that it can be priced again."""

    def __init__(self, engine: Any):
        self.engine = engine
        self._host: list[tuple[int, str]] = []
        self._watch_autograd()

    def _watch_autograd(self) -> None:
        """Note what autograd does on the host: the device does not see it, but these rows are timed with it."""
        import torch

        def noting(kind: str, original: Callable[..., Any]) -> Callable[..., Any]:
            def call(*arguments: Any, **options: Any) -> Any:
                self._host.append((len(self.engine.accounts.entries or ()), kind))
                return original(*arguments, **options)

            return call

        function: Any = torch.autograd.Function
        engine_side: Any = torch.autograd.function.BackwardCFunction
        forward = function.__dict__["apply"].__func__
        function.apply = classmethod(noting("function", forward))
        engine_side.apply = noting("function", engine_side.apply)
        torch.autograd.backward = noting("backward", torch.autograd.backward)
        torch.autograd.grad = noting("backward", torch.autograd.grad)

    def begin(self) -> None:
        """Forget what was recorded; note from now on."""
        self.engine.accounts.keep_journal = True
        self.engine.reset_counters()
        self._host.clear()

    @property
    def events(self) -> list[Any]:
        """The device's journal, and between its entries by name what autograd did on the host.

        Raises ``RuntimeError`` when the call was too long to be priced.
        """
        entries = self.engine.accounts.entries
        if entries is None:
            raise RuntimeError("too many commands in one call")
        found: list[Any] = list(entries)
        for place, kind in reversed(self._host):
            found.insert(place, kind)
        return found


def replay(events: list[Any], spec: Any, *, lead: float | None = None) -> Any:
    """The time line of recorded events under today's model; ``lead``: seconds that the host is ahead."""
    from drkernel.sim.cost.timeline import Timeline
    from drkernel.sim.gpu.device_journal import JournalPricer

    clock = JournalPricer(spec)
    clock.timeline = Timeline(spec, host_lead=lead)
    for event in events:
        if isinstance(event, str):
            clock.timeline.add_host(AUTOGRAD_SECONDS[event])
        else:
            clock.add(event)
    return clock.timeline


def dependences(engine: Any) -> list[str]:
    """Places at which the recorded call went by data that a device without data lacks; none on one with data."""
    return [one.message for one in engine.counters.dependences]


def _argument(value: Any) -> Any:
    import torch

    if isinstance(value, str) and value.startswith("torch."):
        return getattr(torch, value.removeprefix("torch."))
    return value


def _compiled_later(module: Any, **_: Any) -> Any:
    """``torch.compile`` for scripts that also make a compiled baseline: it fails when it is called, not when made."""

    def refuse(*_: Any, **__: Any) -> Any:
        raise NotImplementedError("compiled baselines are not run on the simulated device")

    return refuse


def run_row(module: Any, row: Row, recorder: Recorder, trace: Path) -> dict[str, Any]:
    """Run one row's benchmark function with a ``do_bench`` that calls twice and records the second call."""
    import torch
    import triton

    utils = importlib.import_module("utils")
    config = {name: _argument(value) for name, value in json.loads(row.config or "{}").items()}
    number = float(row.x)
    x = int(number) if number.is_integer() else number
    done: dict[str, Any] = {}

    def do_bench(fn: Callable[[], Any], *_: Any, grad_to_none: Any = (), **__: Any) -> list[float]:
        fn()
        for tensor in grad_to_none or ():
            tensor.grad = None
        recorder.begin()
        fn()
        with trace.open("wb") as file:
            pickle.dump(recorder.events, file)
        done["seconds"] = replay(recorder.events, recorder.engine.spec).elapsed_seconds
        done["depends"] = dependences(recorder.engine)
        return [done["seconds"] * 1e3] * 3

    triton.testing.do_bench = do_bench
    vars(torch).update(compile=_compiled_later)
    functions = [f for name, f in vars(module).items() if name.startswith("bench_speed_")]
    if not functions:
        raise NotImplementedError("the script times nothing in this process (it starts one for each of several GPUs)")
    given = {"x": x, "kernel_provider": row.provider, "kernel_operation_mode": row.mode}
    functions[0](utils.SingleBenchmarkRunInput(**given, extra_benchmark_config=config))
    return done


def main() -> None:
    """Answer rows from standard input; the first line has the settings."""
    settings = json.loads(sys.stdin.readline())
    sources = Path(settings["sources"])
    sys.path[:0] = [str(sources / "src"), str(sources), str(sources / "benchmark" / "scripts")]
    rows = [Row(**json.loads(line)) for line in sys.stdin]
    from drkernel import sim
    from drkernel.sim.gpu.datafree import DataFree

    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    how: dict[str, Any] = {"memory_bytes": settings["memory_bytes"]} if settings["data"] else {"data_free": DataFree()}
    with sim.device(rows[0].card, checks="off", **how) as device:
        try:
            _as_it_was()
            module, broken = importlib.import_module(rows[0].script), ""
        except BaseException as error:
            module, broken = None, f"the script cannot be imported: {type(error).__name__}: {str(error)[:300]}"
        for row in rows:
            trace = Path(settings["traces"]) / settings["names"][row.key]
            answer = {"error": broken, "took": 0.0}
            if not broken:
                started = time.monotonic()

                def timed(row: Row = row, trace: Path = trace) -> dict[str, Any]:
                    return run_row(module, row, Recorder(device.engine), trace) or {"error": "nothing was timed"}

                answer = forked(timed, settings["limit"], 3 * settings["memory_bytes"])
                answer["took"] = round(time.monotonic() - started, 2)
            answer["data"] = settings["data"]
            print(json.dumps({"row": asdict(row), **answer}), file=out, flush=True)


if __name__ == "__main__":
    main()
