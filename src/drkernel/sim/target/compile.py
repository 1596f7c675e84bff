"""Resources of a kernel on the target (registers, spills, shared memory, occupancy), from Triton's own compiler.

A worker process runs Triton's stages to machine code; results (errors too) are cached by content, in memory and on
disk.
"""

from __future__ import annotations

import atexit
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import version
from typing import Any

from drkernel.base.files import user_cache
from drkernel.base.procs import JsonProcess, ProcessFailure
from drkernel.sim.cost.launch_time import blocks_per_sm
from drkernel.sim.spec import GPUSpec
from drkernel.sim.target.shared_memory import OverShared, with_or_without

TIMEOUT_SECONDS = 120.0
"""A kernel that takes longer than this to compile is refused."""
_memory: dict[str, dict[str, Any]] = {}


class TargetCompileError(RuntimeError):
    """The target's compiler refused the kernel; the message is the compiler's own."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind
        """the exception that a GPU user would see, e.g. ``OutOfResources``"""


@dataclass(frozen=True)
class KernelResources:
    """Resources of one program of a compiled kernel."""

    registers: int | None
    """registers per thread; None where nothing was compiled """
    spills: int | None
    """32-bit words per thread in local memory; None where nothing was compiled """
    shared_bytes: int
    """shared memory of one program"""
    num_warps: int
    num_stages: int
    occupancy_blocks_per_sm: int
    """programs resident on one SM"""


def compile_for_target(
    ttir: str,
    spec: GPUSpec,
    *,
    num_warps: int,
    num_stages: int,
    options: Mapping[str, Any] | None = None,
) -> KernelResources:
    """Return the resources of a kernel on a GPU, compiled to machine code (0.1 to 1 s the first time).

    Args:
        ttir: the kernel after Triton's front end, as text.
        spec: the target.
        num_warps: warps of one program.
        num_stages: depth of software pipelining.
        options: further backend options, e.g. ``maxnreg``, ``num_ctas``; they must be JSON values.

    Raises:
        TargetCompileError: the compiler's own error, or ``OutOfResources`` as launching it would raise.
    """
    given = {**(options or {}), "num_warps": num_warps, "num_stages": num_stages}
    answer = with_or_without(strip_locations(ttir), lambda text: _compiled(text, spec, given), TargetCompileError)
    shared, registers = answer["shared"], answer["registers"]
    if shared > spec.max_smem_per_block:
        raise TargetCompileError("OutOfResources", str(OverShared(shared, spec.max_smem_per_block)))
    occupancy = blocks_per_sm(spec, num_warps, shared, registers)
    return KernelResources(registers, answer["spills"], shared, num_warps, num_stages, occupancy)


def _compiled(ttir: str, spec: GPUSpec, options: dict[str, Any], **further: str) -> dict[str, Any]:
    """The answer about a kernel. Raises :class:`TargetCompileError`."""
    facts = {"ttir": ttir, "backend": spec.backend, "arch": spec.arch, "warp_size": spec.warp_size, "options": options}
    answer = _cached({**facts, **further})
    if "error" in answer:
        raise TargetCompileError(answer["error"], answer["message"])
    return answer


def text_for_target(spec: GPUSpec, ttir: str, num_warps: int, num_stages: int, stage: str) -> str:
    """Return a kernel as a stage of the compiler leaves it: "ttgir", "llir", and "ptx" or "amdgcn".

    Raises:
        TargetCompileError: the compiler's own error, ``KeyError`` among them for a stage that the target lacks.
    """
    options = {"num_warps": num_warps, "num_stages": num_stages}
    return str(_compiled(ttir, spec, options, stage=stage)["text"])


def strip_locations(ttir: str) -> str:
    """Strip source locations from TTIR, so that the same kernel in another file has the same content."""
    lines = [line for line in ttir.splitlines() if not line.startswith("#loc")]
    return "\n".join(_without_locations(line) for line in lines) + "\n"


def _without_locations(line: str) -> str:
    out: list[str] = []
    position = 0
    for match in re.finditer(r"\s*\bloc\(", line):
        if match.start() < position:
            continue
        out.append(line[position : match.start()])
        depth, end, quoted = 1, match.end(), False
        while depth and end < len(line):
            character = line[end]
            if character == '"' and line[end - 1] != "\\":
                quoted = not quoted
            elif not quoted:
                depth += (character == "(") - (character == ")")
            end += 1
        position = end
    out.append(line[position:])
    return "".join(out)


# ---- cache


@lru_cache
def _triton_version() -> str:
    return version("triton")


def _cached(request: dict[str, Any]) -> dict[str, Any]:
    text = json.dumps([_triton_version(), request], sort_keys=True)
    if text in _memory:
        return _memory[text]
    disk = user_cache("compile")
    kept = disk.get(text) if disk is not None else None
    if kept is not None:
        answer: dict[str, Any] = json.loads(kept)
    else:
        try:
            answer = _compiler.ask(request, TIMEOUT_SECONDS)
        except ProcessFailure as error:  # it may be the machine's: tried again next time
            return {"error": CRASH, "message": f"the compiler failed on this kernel: {error}"}
        if disk is not None:
            disk.put(json.dumps(answer).encode(), text)
    _memory[text] = answer
    return answer


CRASH = "CompilerCrash"
_compiler = JsonProcess("drkernel.sim.target.compile_worker")
atexit.register(_compiler.close)
