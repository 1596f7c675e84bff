"""Examines what this machine can do for drkernel, and what is missing; the facts behind ``drkernel doctor``."""

from __future__ import annotations

import importlib
import importlib.util
import os
import platform
import shutil
import sys
from typing import Literal

from pydantic import Field

from drkernel.config import Config

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


def examine(*, sessions: bool = True) -> list[MachineFact]:
    """Every check, the necessary first. ``sessions`` also starts a sandbox and grades a kernel (about 5 s)."""
    checks = [_python(), _package("torch", ">= 2.8"), _package("triton", ">= 3.6"), _package("llvmlite", ">= 0.44")]
    checks += [_cpu(), _memory(), _gpu()]
    if sessions and all(check.level != "missing" for check in checks[:4]):
        checks += _grading()
    checks.append(_bubblewrap())
    checks += [_extra(name, modules) for name, modules in EXTRAS.items()]
    return checks


def _python() -> MachineFact:
    good = sys.version_info >= (3, 11) and sys.platform == "linux"
    detail = f"Python {platform.python_version()} on {platform.system()} {platform.release()} {platform.machine()}"
    return MachineFact(
        name="python",
        level="ok" if good else "missing",
        detail=detail,
        needed_for="" if good else "Linux, Python 3.11+",
    )


def _package(name: str, wanted: str) -> MachineFact:
    try:
        module = importlib.import_module(name)
    except ImportError as error:
        return MachineFact(
            name=name, level="missing", detail=str(error), needed_for=f"everything: pip install {name}{wanted}"
        )
    return MachineFact(name=name, level="ok", detail=str(getattr(module, "__version__", "unknown version")))


def _cpu() -> MachineFact:
    cores = len(os.sched_getaffinity(0))
    level: Level = "ok" if cores >= 2 else "limited"
    needed = "" if cores >= 2 else "more cores grade more candidates at once"
    return MachineFact(name="cpu", level=level, detail=f"{cores} cores usable", needed_for=needed)


def _memory() -> MachineFact:
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    level: Level = "ok" if total >= 6 << 30 else "limited"
    needed = "" if level == "ok" else "the quickstart needs about 6 GiB"
    return MachineFact(name="memory", level=level, detail=f"{total / 2**30:.1f} GiB", needed_for=needed)


def _gpu() -> MachineFact:
    why = "measured times; without one, times are modelled by the simulator (sim:h200)"
    if importlib.util.find_spec("torch") is None:
        return MachineFact(name="gpu", level="limited", detail="torch is missing", needed_for=why)
    import torch

    if not torch.cuda.is_available():
        return MachineFact(name="gpu", level="limited", detail="no CUDA device visible to torch", needed_for=why)
    names = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
    return MachineFact(name="gpu", level="ok", detail=", ".join(names))


def _grading() -> list[MachineFact]:
    """Start a real sandbox and grade a real kernel in it, then report the isolation layers that were active."""
    from drkernel.gym.judge.judge import evaluate
    from drkernel.gym.request import EvalRequest, EvalSettings
    from drkernel.gym.session.factory import SessionFactory
    from drkernel.task import Task

    request = EvalRequest(
        task=Task(id="doctor/add", reference=_REFERENCE),
        candidate=_CANDIDATE,
        settings=EvalSettings(profile=None, deadline_s=60),
    )
    with SessionFactory() as factory:
        verdict = evaluate(request, factory)
    trouble = verdict.error.message if verdict.error else (verdict.correctness and verdict.correctness.message) or ""
    checks = [
        MachineFact(
            name="grading",
            level="ok" if verdict.is_correct else "missing",
            detail=f"a Triton kernel on {verdict.device}: {verdict.status} ({verdict.seconds:.2f} s) {trouble}".strip(),
            needed_for="" if verdict.is_correct else "every evaluation",
        )
    ]
    checks += [MachineFact(name=f"sandbox: {layer}", level="ok", detail="active") for layer in verdict.sandbox.layers]
    checks += [
        MachineFact(name=f"sandbox: {layer}", level="limited", detail=why, needed_for="isolation of hostile candidates")
        for layer, why in verdict.sandbox.missing.items()
    ]
    return checks


def _bubblewrap() -> MachineFact:
    path = shutil.which("bwrap")
    if path:
        return MachineFact(name="bubblewrap", level="ok", detail=path)
    return MachineFact(name="bubblewrap", level="limited", detail="not installed", needed_for="one more sandbox layer")


def _extra(name: str, modules: tuple[str, ...]) -> MachineFact:
    absent = [module for module in modules if importlib.util.find_spec(module) is None]
    if not absent:
        return MachineFact(name=f"extra: {name}", level="ok", detail=", ".join(modules))
    needed = f"`drkernel` {name}: pip install 'drkernel[{name}]'"
    return MachineFact(name=f"extra: {name}", level="limited", detail=f"without {', '.join(absent)}", needed_for=needed)


_REFERENCE = """
import torch

class Model(torch.nn.Module):
    def forward(self, x, y):
        return x + y

def get_inputs():
    return [torch.randn(1000), torch.randn(1000)]
"""
_CANDIDATE = """
import torch
import triton
import triton.language as tl

@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, at < n) + tl.load(y + at, at < n), at < n)

class ModelNew(torch.nn.Module):
    def forward(self, x, y):
        out = torch.empty_like(x)
        add[(triton.cdiv(x.numel(), 256),)](x, y, out, x.numel(), BLOCK=256)
        return out
"""
