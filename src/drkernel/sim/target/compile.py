"""Resources of a kernel on the target (registers, spills, shared memory, occupancy), from Triton's own compiler.

Depth ``"ttir"`` compiles nothing and knows only the number of warps. Depth ``"full"`` runs Triton's stages to machine
code in a worker process and caches the result (errors too) by content, in memory and on disk.
"""

from __future__ import annotations

import atexit
import hashlib
import json
import os
import re
import selectors
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

from drkernel.sim.cost.launch_time import blocks_per_sm
from drkernel.sim.spec import GPUSpec
from drkernel.sim.target.shared_memory import OverShared, with_or_without

TIMEOUT_SECONDS = 120.0
"""A kernel that takes longer than this to compile is refused."""
_CACHE_FORMAT = 1
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
    """registers per thread; None at depth "ttir" """
    spills: int | None
    """32-bit words per thread in local memory; None at depth "ttir" """
    shared_bytes: int
    """shared memory of one program"""
    num_warps: int
    num_stages: int
    occupancy_blocks_per_sm: int
    """programs resident on one SM"""
    source: Literal["ttir", "full"]


def compile_for_target(
    ttir: str,
    spec: GPUSpec,
    *,
    num_warps: int,
    num_stages: int,
    depth: Literal["ttir", "full"] = "full",
    options: Mapping[str, Any] | None = None,
) -> KernelResources:
    """Return the resources of a kernel on a GPU.

    Args:
        ttir: the kernel after Triton's front end, as text.
        spec: the target.
        num_warps: warps of one program.
        num_stages: depth of software pipelining.
        depth: "ttir" (nothing is compiled) or "full" (to machine code, 0.1 to 1 s the first time).
        options: further backend options, e.g. ``maxnreg``, ``num_ctas``; they must be JSON values.

    Raises:
        TargetCompileError: the compiler's own error, or ``OutOfResources`` as launching it would raise.
    """
    if depth == "ttir":
        return KernelResources(None, None, 0, num_warps, num_stages, blocks_per_sm(spec, num_warps), "ttir")
    given = {**(options or {}), "num_warps": num_warps, "num_stages": num_stages}
    answer = with_or_without(strip_locations(ttir), lambda text: _compiled(text, spec, given), TargetCompileError)
    shared, registers = answer["shared"], answer["registers"]
    if shared > spec.max_smem_per_block:
        raise TargetCompileError("OutOfResources", str(OverShared(shared, spec.max_smem_per_block)))
    occupancy = blocks_per_sm(spec, num_warps, shared, registers)
    return KernelResources(registers, answer["spills"], shared, num_warps, num_stages, occupancy, "full")


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


def cache_folder() -> Path:
    """Return the directory of cached resources: ``$XDG_CACHE_HOME/drkernel/compile``."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "drkernel" / "compile"


@lru_cache
def _triton_version() -> str:
    return version("triton")


def _cached(request: dict[str, Any]) -> dict[str, Any]:
    text = json.dumps([_CACHE_FORMAT, _triton_version(), request], sort_keys=True)
    key = hashlib.sha256(text.encode()).hexdigest()
    if key in _memory:
        return _memory[key]
    path = cache_folder() / key[:2] / f"{key}.json"
    try:
        answer = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        answer = _worker.ask(request)
        if answer.get("error") != CRASH:
            store(path, answer)
    _memory[key] = answer
    return answer


def store(path: Path, answer: dict[str, Any]) -> None:
    """Write atomically. A cache that cannot be written (read-only home) costs time, not correctness."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False, encoding="utf-8") as file:
            json.dump(answer, file)
        os.replace(file.name, path)
    except OSError:
        return


# ---- worker

CRASH = "CompilerCrash"


class _Worker:
    """One compiler process, started on first use and replaced when it dies or hangs. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None
        self._owner = 0

    def ask(self, request: dict[str, Any], timeout: float | None = None) -> dict[str, Any]:
        """Compile, or report that the compiler died or timed out."""
        limit = TIMEOUT_SECONDS if timeout is None else timeout
        with self._lock:
            process = self._ensure()
            assert process.stdin is not None and process.stdout is not None
            try:
                process.stdin.write(json.dumps(request) + "\n")
                process.stdin.flush()
            except OSError:
                return self._crashed()
            with selectors.DefaultSelector() as selector:
                selector.register(process.stdout, selectors.EVENT_READ)
                if not selector.select(limit):
                    self.stop()
                    return {"error": CRASH, "message": f"the compiler gave no answer within {limit:g} s"}
            line = process.stdout.readline()
            return json.loads(line) if line else self._crashed()

    def _ensure(self) -> subprocess.Popen[str]:
        if self._process is None or self._process.poll() is not None or self._owner != os.getpid():
            self._process = subprocess.Popen(
                [sys.executable, "-m", "drkernel.sim.target.compile_worker"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )
            self._owner = os.getpid()
        return self._process

    def _crashed(self) -> dict[str, Any]:
        code = self._process.wait() if self._process else None
        self._process = None
        return {"error": CRASH, "message": f"the compiler process died (exit status {code}) on this kernel"}

    def stop(self) -> None:
        """End the process, if this process started it."""
        if self._process is not None and self._owner == os.getpid():
            self._process.kill()
            self._process.wait()
        self._process = None


_worker = _Worker()
atexit.register(_worker.stop)
