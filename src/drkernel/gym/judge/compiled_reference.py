"""The modelled time of a reference under ``torch.compile``, for ``--baseline compile`` on a simulated GPU.

PyTorch's compiler itself runs (``sim/inductor/``), in a process that is kept for each card.
"""

from __future__ import annotations

import atexit
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path

import torch

from drkernel.base.files import DiskCache, cache_folder, open_cache
from drkernel.base.procs import Answerer, ProcessFailure
from drkernel.digest import source_digest
from drkernel.gym.judge.memory import default_budget
from drkernel.sim.spec import GPUSpec
from drkernel.verdict import Profile

COMPILE_SECONDS = 150.0
"""seconds for one reference"""
START_SECONDS = 240.0
"""seconds to import the compilers and compile something small"""
_KEPT = 512


class NotCompiled(Exception):
    """The reference could not be compiled; ``str`` says why."""


@lru_cache(maxsize=_KEPT)
def compiled_baseline(source: str, spec: GPUSpec, *, conv_tf32: bool) -> Profile:
    """Return the modelled profile of one compiled call of a reference.

    Cached by source (sizes are part of it), card, versions and the model's own files: here, and as a file in the user's
    cache, because every slot of a pool asks.

    Raises :class:`NotCompiled`, for instance for a reference that becomes more than one graph.
    """
    key = [source, spec.model_dump_json(), str(conv_tf32), torch.__version__, version("triton"), source_digest("sim")]
    disk = _disk(cache_folder("torch_compile"))
    kept = disk.get(*key) if disk is not None else None
    if kept is not None:
        return Profile.model_validate_json(kept)
    request = {
        "source": source, "conv_tf32": conv_tf32, "seconds": COMPILE_SECONDS, "memory_bytes": default_budget()
    }  # fmt: skip
    try:
        answer = _compiler_for(spec).ask(request, COMPILE_SECONDS + START_SECONDS)
    except ProcessFailure as error:
        raise NotCompiled(f"the compiler: {error}") from error
    if "error" in answer:
        raise NotCompiled(answer["error"])
    profile = Profile.model_validate(answer["profile"])
    if disk is not None:
        disk.put(profile.model_dump_json().encode(), *key)
    return profile


@lru_cache
def _disk(folder: Path) -> DiskCache | None:
    return open_cache(folder)


@lru_cache(maxsize=4)
def _compiler_for(spec: GPUSpec) -> Answerer:
    """One process for each card, which knows it before the first reference."""
    compiler = Answerer("drkernel.gym.judge.compile_process", spec.model_dump_json(), START_SECONDS)
    atexit.register(compiler.close)
    return compiler
