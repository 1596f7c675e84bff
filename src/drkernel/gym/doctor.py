"""Examines what this machine can do for drkernel, and what is missing; the facts behind ``drkernel doctor``.

Certifies a machine with a GPU for measured grading; the rows of ``drkernel doctor --gpu``.

Each row is one question of the first day on a card, answered by the machinery that grades: sessions and evaluations on
``cuda:N`` as every candidate has them. What a row proves is in docs/gpu.md.
"""

import ctypes
import importlib
import importlib.util
import os
import platform
import re
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from statistics import median
from typing import Any, Literal

import torch
from pydantic import Field

from drkernel.config import Config
from drkernel.gym.judge.co_judge import nearest_card
from drkernel.gym.judge.judge import evaluate
from drkernel.gym.judge.memory import machine_bytes
from drkernel.gym.request import EvalRequest, EvalSettings
from drkernel.gym.session.base import OpensSessions
from drkernel.gym.session.cuda import CudaSession
from drkernel.task import Task
from drkernel.verdict import Verdict
from drkernel.view import size

Level = Literal["ok", "limited", "missing"]
EXTRAS: dict[str, tuple[str, ...]] = {
    "train": ("transformers", "tokenizers", "safetensors"),
    "serve": ("fastapi", "uvicorn", "httpx"),
    "solve": ("httpx",),
    "ray": ("ray",),
    "data": ("pyarrow",),
}


class MachineFact(Config):
    """One fact about the machine."""

    name: str = Field(description="what was looked at")
    level: Level = Field(description="'ok', 'limited' (works with less) or 'missing'")
    detail: str = Field(description="what was found")
    needed_for: str = Field("", description="what does not work without it, and how to get it")


def examine() -> list[MachineFact]:
    """Every check, the necessary first. The last starts a sandbox and grades a kernel (about 5 s)."""
    checks = [_python(), _package("torch", ">= 2.8"), _package("triton", ">= 3.6"), _package("llvmlite", ">= 0.44")]
    checks += [_cpu(), _memory(), _gpu()]
    if all(check.level != "missing" for check in checks[:4]):
        checks += _grading()
    checks += [_extra(name, modules) for name, modules in EXTRAS.items()]
    return checks


def _fact(name: str, good: bool, detail: str, needed: str = "", bad: Level = "limited") -> MachineFact:
    """A fact that is as wanted, or else what does not work without it."""
    return MachineFact(name=name, level="ok" if good else bad, detail=detail, needed_for="" if good else needed)


def _python() -> MachineFact:
    good = sys.version_info >= (3, 11) and sys.platform == "linux"
    detail = f"Python {platform.python_version()} on {platform.system()} {platform.release()} {platform.machine()}"
    return _fact("python", good, detail, "Linux, Python 3.11+", "missing")


def _package(name: str, wanted: str) -> MachineFact:
    try:
        module = importlib.import_module(name)
    except ImportError as error:
        return _fact(name, False, str(error), f"everything: pip install {name}{wanted}", "missing")
    return _fact(name, True, str(getattr(module, "__version__", "unknown version")))


def _cpu() -> MachineFact:
    cores = len(os.sched_getaffinity(0))
    return _fact("cpu", cores >= 2, f"{cores} cores usable", "more cores grade more candidates at once")


def _memory() -> MachineFact:
    total = machine_bytes()
    return _fact("memory", total >= 6 << 30, f"{total / 2**30:.1f} GiB", "the quickstart needs about 6 GiB")


def _gpu() -> MachineFact:
    why = "measured times; without one, times are modelled by the simulator (sim:h200)"
    if not torch.cuda.is_available():
        return _fact("gpu", False, "no CUDA device visible to torch", why)
    names = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
    return _fact("gpu", True, ", ".join(names))


def _grading() -> list[MachineFact]:
    """Start a real sandbox and grade a real kernel in it, then report the isolation layers that were active."""
    from drkernel.gym.session.factory import SessionFactory

    with SessionFactory() as factory:
        verdict = _verdict(EvalSettings(deadline_s=60), factory, _DOUBLE, _TRITON)
    trouble = verdict.error.message if verdict.error else (verdict.correctness and verdict.correctness.message) or ""
    said = f"a Triton kernel on {verdict.device}: {verdict.status} ({verdict.seconds:.2f} s) {trouble}".strip()
    layers, absent = verdict.sandbox.layers, verdict.sandbox.missing
    return [
        _fact("grading", verdict.is_correct, said, "every evaluation", "missing"),
        *(_fact(f"sandbox: {layer}", True, "active") for layer in layers),
        *(_fact(f"sandbox: {layer}", False, why, "isolation of hostile candidates") for layer, why in absent.items()),
    ]


def _extra(name: str, modules: tuple[str, ...]) -> MachineFact:
    absent = [module for module in modules if importlib.util.find_spec(module) is None]
    found = f"without {', '.join(absent)}" if absent else ", ".join(modules)
    return _fact(f"extra: {name}", not absent, found, f"`drkernel` {name}: pip install 'drkernel[{name}]'")


OUTPUTS = (4 << 10, 1 << 20, 64 << 20, 1 << 30)
"""bytes of the outputs that are graded"""
CONFIGURATIONS = 60
SELF_RUNS, SELF_INSIDE = 6, 4
"""runs of a reference against itself, and how many intervals must contain 1: of 95% intervals fewer do in 2 of 1000"""
LENGTHS = (1, 2, 4)
TURNS = 200_000
"""of the shortest kernel of known length: dependent products, about half a millisecond on a GPU"""
LINEAR = 0.1
"""by how much the second difference of the lengths' times may miss twice the first, and a time at work with others the
time alone"""
FLUSH = 256 << 20


class CardRow(Config):
    """One row of the certificate."""

    name: str = Field(description="what was asked")
    result: Literal["PASS", "FAIL", "figure"]
    detail: str = Field(description="what was found")


class _Failed(Exception):
    """``str`` is the row's detail."""


def certify(settings: EvalSettings, factory: OpensSessions, outputs: tuple[int, ...] = OUTPUTS) -> Iterator[CardRow]:
    """Every row, in the order in which one needs the last. ``settings`` name the GPU; trials and limits are as for any
    evaluation there."""
    number = int(settings.device.partition(":")[2])
    tuned = partial(_graded, settings, factory, _DOUBLE, _TUNED.replace("COUNT", str(CONFIGURATIONS)), co_judge="off")
    rows: list[tuple[str, Callable[[], str]]] = [
        ("driver", _driver),
        ("torch", partial(_torch, number)),
        ("card: judge and runner", partial(_card, settings, factory, number)),
        ("sandbox: compile and launch", partial(_launch, settings, factory)),
        ("sandbox: profile", partial(_profile, settings, factory)),
        ("clock: kernels of known length", partial(_lengths, settings, factory)),
        ("clock: a reference against itself", partial(_itself, settings, factory)),
        *((f"output of {size(n)}", partial(_output, settings, factory, n)) for n in outputs),
        (f"autotuning: {CONFIGURATIONS} configurations", tuned),
        ("baseline: torch.compile", partial(_graded, settings, factory, _DOUBLE, _TRITON, baseline="compile")),
        ("CUDA C++", partial(_graded, settings, factory, _DOUBLE, _CUDA)),
        ("all cards at once", partial(_together, settings, factory)),
    ]
    start = time.perf_counter()
    for name, ask in rows:
        try:
            detail, passed = ask(), True
        except Exception as error:  # a row that fails is what this is for
            detail, passed = str(error) if isinstance(error, _Failed) else f"{type(error).__name__}: {error}", False
        yield CardRow(name=name, result="PASS" if passed else "FAIL", detail=detail)
        if name.startswith("card:") and not passed:  # nothing below could pass
            return
    yield CardRow(name="time of all rows", result="figure", detail=f"{time.perf_counter() - start:.0f} s")


# ---- the machine


def _driver() -> str:
    """The driver is new enough for this torch's CUDA."""
    found = ctypes.c_int()
    ctypes.CDLL("libcuda.so.1").cuDriverGetVersion(ctypes.byref(found))
    version, wanted = (found.value // 1000, found.value % 1000 // 10), torch.version.cuda
    if wanted is None:
        raise _Failed("this torch is a build without CUDA: pip install torch from an index of CUDA builds")
    said = f"CUDA {version[0]}.{version[1]}, torch was built for {wanted}"
    if version[0] < int(wanted.partition(".")[0]):  # minor versions are compatible
        raise _Failed(f"{said}: the driver is too old")
    return said


def _torch(number: int) -> str:
    """This torch has code for the card."""
    if not torch.cuda.is_available() or number >= torch.cuda.device_count():
        raise _Failed(f"torch {torch.__version__} sees {torch.cuda.device_count()} CUDA devices, and no cuda:{number}")
    arch, built = "{}{}".format(*torch.cuda.get_device_capability(number)), torch.cuda.get_arch_list()
    said = f"torch {torch.__version__}, sm_{arch}, built for {', '.join(built)}"
    if not any(re.sub(r"\D", "", name)[:-1] == arch[:-1] for name in built):
        raise _Failed(f"{said}: no code for this card")
    return said


def _card(settings: EvalSettings, factory: OpensSessions, number: int) -> str:
    """The runner has the card that the judge means."""
    judge = _seen(torch.cuda.get_device_properties(number))
    with factory.open(settings) as session:
        session.load(_SEES, [], {}, seed=0)
        session.call([])
        runner = session.stdout().strip()
    if runner != judge:
        raise _Failed(f"the judge's is {judge}, the runner's {runner}")
    return f"{judge}; co-judge: {nearest_card(settings.place)}"


def _seen(card: Any) -> str:
    return f"{card.name}, {getattr(card, 'uuid', '')}, {card.multi_processor_count} multiprocessors"


# ---- sessions


def _launch(settings: EvalSettings, factory: OpensSessions) -> str:
    """Triton compiles in the sandbox, and a launch is executed, told and skipped."""
    x = torch.randn(1000)
    with factory.open(settings) as session:
        session.load(_TRITON, [], {}, seed=0)
        start = time.perf_counter()
        first = session.call([x])
        seconds = time.perf_counter() - start
        if not _is(first.outputs[0].value, x * 2):
            raise _Failed("the kernel's answer is wrong")
        if [launch.name for launch in first.record.launches] != ["double"]:
            raise _Failed(f"one launch was made, and told were {[launch.name for launch in first.record.launches]}")
        skipped = session.call([x], poison="nan", interference="skip")
        if _is(skipped.outputs[0].value, x * 2):
            raise _Failed("a launch that was to be skipped was executed")
    return f"first call {seconds:.1f} s, compiler included"


def _is(value: Any, expected: torch.Tensor) -> bool:
    return isinstance(value, torch.Tensor) and torch.equal(value, expected)


def _profile(settings: EvalSettings, factory: OpensSessions) -> str:
    """The profiler sees kernels in the sandbox, and whose they are."""
    with _timed(settings, factory, _TRITON.replace("return out", "return torch.relu(out)")) as session:
        profile = session.profile([session.put(torch.randn(1 << 20))], calls=3)
    owners = {row.name: row.owner for row in profile.rows}
    if owners.pop("double", None) != "custom" or "library" not in owners.values():
        raise _Failed(f"a kernel of its own and relu were called, and the profile has {owners or 'no rows'}")
    return ", ".join(f"{row.name} {row.seconds * 1e6:.1f} us" for row in profile.rows)


def _lengths(settings: EvalSettings, factory: OpensSessions) -> str:
    """Kernels of lengths 1, 2 and 4 take times in proportion, by events and by the judge's clock."""
    events, walls, clocks = [], [], []
    with _timed(settings, factory, _CHAIN) as session:
        handle = session.put(torch.ones(32))
        session.call([handle, TURNS])
        session.time([[handle, TURNS]], order=[0], flush_bytes=FLUSH)
        for length in LENGTHS:
            order = [0] * 10
            empty = session.time([[handle, length * TURNS]], order=order, flush_bytes=FLUSH, dry=True)
            timed = session.time([[handle, length * TURNS]], order=order, flush_bytes=FLUSH)
            events.append(median(timed.device_seconds))
            walls.append((timed.wall_seconds - empty.wall_seconds) / len(order))
            clocks += [reading.mhz for reading in timed.clocks]
        told = f"{min(clocks)} to {max(clocks)} MHz" if clocks else f"clock not read: {session.no_clock}"
    pairs = zip(events, walls, strict=True)
    said = "; ".join([*(f"{e * 1e6:.0f} us by events, {w * 1e6:.0f} us by the judge" for e, w in pairs), told])
    for times in (events, walls):
        first, second = times[1] - times[0], times[2] - times[1]
        if first <= 0 or abs(second / first / 2 - 1) > LINEAR:
            raise _Failed(f"not as 1, 2 and 4: {said}")
    return said


@contextmanager
def _timed(settings: EvalSettings, factory: OpensSessions, source: str) -> Iterator[CudaSession]:
    with factory.open(settings) as session:
        assert isinstance(session, CudaSession), "a real GPU"
        session.load(source, [], {}, seed=0)
        yield session


# ---- evaluations


def _verdict(settings: EvalSettings, factory: OpensSessions, task: str, source: str, **terms: Any) -> Verdict:
    chosen = settings.model_copy(update={"profile": None, **terms})
    return evaluate(EvalRequest(task=Task(id="doctor", reference=task), candidate=source, settings=chosen), factory)


def _graded(settings: EvalSettings, factory: OpensSessions, task: str, source: str, **terms: Any) -> str:
    """An honest candidate is correct, and has a speedup."""
    verdict = _verdict(settings, factory, task, source, **terms)
    if not verdict.is_correct or verdict.speedup is None or verdict.timing is None:
        shown = [f"{finding.kind}: {finding.message}" for finding in verdict.findings if finding.severity != "note"]
        wrong = verdict.correctness.message if verdict.correctness else None
        raise _Failed(f"{verdict.status}: {verdict.error.message if verdict.error else '; '.join(shown) or wrong}")
    said = f"{verdict.timing.seconds * 1e6:.1f} us, {verdict.speedup.value:.2f} times {verdict.baseline}"
    return said + (f", coverage {verdict.coverage:.0%}" if verdict.coverage is not None else "")


def _itself(settings: EvalSettings, factory: OpensSessions) -> str:
    """The interval of a reference against itself contains 1."""
    source, found = _DOUBLE.replace("class Model(", "class ModelNew("), []
    for _ in range(SELF_RUNS):
        verdict = _verdict(settings, factory, _DOUBLE, source, checks=1, knock_out=False, other_calls=False)
        if verdict.speedup is None:
            raise _Failed(f"{verdict.status}: {verdict.error and verdict.error.message}")
        found.append((verdict.speedup.low, verdict.speedup.high))
    inside = sum(low <= 1 <= high for low, high in found)
    said = f"{inside} of {SELF_RUNS} intervals contain 1: " + ", ".join(f"{a:.3f} to {b:.3f}" for a, b in found)
    if inside < SELF_INSIDE:
        raise _Failed(said)
    return said


def _output(settings: EvalSettings, factory: OpensSessions, nbytes: int) -> str:
    """An honest candidate with an output of this size is not accused."""
    rows = max(1, nbytes // 4096)
    task, source = (text.replace("ROWS", str(rows)) for text in (_OUTER, _OUTER_TRITON))
    terms = {"checks": 1, "knock_out": False, "other_calls": False, "co_judge": "off", "trials": 10}
    memory = max(settings.memory_bytes, 8 * nbytes + (4 << 30 if nbytes > 64 << 20 else 0))
    return _graded(settings, factory, task, source, **terms, memory_bytes=memory)


def _together(settings: EvalSettings, factory: OpensSessions) -> str:
    """Cards that work at once take as long as each alone: no shared clock, power or host is in a time."""
    cards = [f"cuda:{number}" for number in range(torch.cuda.device_count())]
    if len(cards) == 1:
        return "one card"

    def seconds(card: str) -> float:
        verdict = _verdict(settings, factory, _DOUBLE, _TRITON, device=card, co_judge="off")
        if verdict.timing is None:
            raise _Failed(f"{card}: {verdict.status}: {verdict.error and verdict.error.message}")
        return verdict.timing.seconds

    alone = [seconds(card) for card in cards]
    with ThreadPoolExecutor(len(cards)) as pool:
        together = list(pool.map(seconds, cards))
    said = ", ".join(f"{c} {a * 1e6:.1f} and {t * 1e6:.1f} us" for c, a, t in zip(cards, alone, together, strict=True))
    if any(abs(t / a - 1) > LINEAR for a, t in zip(alone, together, strict=True)):
        raise _Failed(f"alone and together: {said}")
    return said


_SEES = """
import torch
class ModelNew:
    def __call__(self):
        card = torch.cuda.get_device_properties(0)
        print(f"{card.name}, {getattr(card, 'uuid', '')}, {card.multi_processor_count} multiprocessors")
        return 1
"""
_DOUBLE = """
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        return x * 2

def get_inputs():
    return [torch.randn(1 << 18)]
"""
_HEAD = """
import torch
import triton
import triton.language as tl
"""
_TRITON = f"""{_HEAD}
@triton.jit
def double(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, at < n) * 2, at < n)

class ModelNew(torch.nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        double[(triton.cdiv(x.numel(), 1024),)](x, out, x.numel(), BLOCK=1024)
        return out
"""
_CHAIN = f"""{_HEAD}
@triton.jit
def chain(x, out, turns):
    at = tl.arange(0, 32)
    value = tl.load(x + at)
    for _ in range(turns):
        value = value * 0.9999 + 0.0001
    tl.store(out + at, value)

class ModelNew(torch.nn.Module):
    def forward(self, x, turns):
        out = torch.empty_like(x)
        chain[(1,)](x, out, turns, num_warps=1)
        return out
"""
_OUTER = """
import torch

class Model(torch.nn.Module):
    def forward(self, x, y):
        return x[:, None] * y[None, :]

def get_inputs():
    return [torch.randn(ROWS), torch.randn(1024)]
"""
_OUTER_TRITON = f"""{_HEAD}
@triton.jit
def outer(x, y, out):
    row = tl.program_id(0)
    at = tl.arange(0, 1024)
    tl.store(out + row.to(tl.int64) * 1024 + at, tl.load(x + row) * tl.load(y + at))

class ModelNew(torch.nn.Module):
    def forward(self, x, y):
        out = torch.empty((x.numel(), 1024), dtype=x.dtype, device=x.device)
        outer[(x.numel(),)](x, y, out)
        return out
"""
_TUNED = (
    _TRITON.replace(
        "@triton.jit",
        """@triton.autotune(
    [triton.Config({"BLOCK": 128 << n % 4}, num_warps=1 << n // 4 % 3, num_stages=1 + n // 12) for n in range(COUNT)],
    key=["n"],
)
@triton.jit""",
    )
    .replace("(triton.cdiv(x.numel(), 1024),)", 'lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)')
    .replace(", BLOCK=1024)", ")")
)
_CUDA = """
import torch
from torch.utils.cpp_extension import load_inline

KERNEL = '''
__global__ void double_all(const float* x, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = 2 * x[i];
}
torch::Tensor doubled(torch::Tensor x) {
    auto out = torch::empty_like(x);
    double_all<<<(x.numel() + 255) / 256, 256>>>(x.data_ptr<float>(), out.data_ptr<float>(), x.numel());
    return out;
}
'''
DECLARED = "torch::Tensor doubled(torch::Tensor x);"
built = load_inline("doctor", cpp_sources=DECLARED, cuda_sources=KERNEL, functions=["doubled"])

class ModelNew(torch.nn.Module):
    def forward(self, x):
        return built.doubled(x)
"""
