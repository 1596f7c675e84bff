"""Checks whether a kernel's shared memory fits the target, without compiling every kernel for it.

The shared memory of a program is decided by Triton's own passes (pipelining, layout conversions). They cost tens of
milliseconds, so they run only for kernels that might be too large: :func:`shared_bound` selects these from the shapes
alone. For them the figure is exact (:func:`exact_shared`), and a kernel that the GPU would refuse is refused here with
Triton's own message.

Resources of a kernel on the target (registers, spills, shared memory, occupancy) are Triton's own compiler's: a worker
process runs its stages to machine code; results (errors too) are cached by content, in memory and on disk.
"""

import atexit
import contextlib
import json
import os
import re
import select
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from importlib.metadata import version
from typing import Any, TypeVar

from drkernel.base.files import Recent, kept_or_made
from drkernel.base.procs import JsonProcess, ProcessFailure
from drkernel.sim.compile_worker import lower_to_ttgir
from drkernel.sim.cost.roofline import blocks_per_sm
from drkernel.sim.spec import GPUSpec
from ttir_executor.lower.plan import walk
from ttir_executor.ttir.ir import Function, Type, elem_bytes

Answer = TypeVar("Answer")
SECONDS = 30.0
"""seconds that the passes may take; Triton's own need well under a second"""
PTX_VERSION = 87
"""version of CUDA 12.8; asking the assembler would mean running a program, which a confined device may not"""
_STAGES = re.compile(r"tt\.num_stages = (\d+)")
_SPECIALISED = re.compile(r"(?<=\{)tt\.warp_specialize(, )?|, tt\.warp_specialize\b")
_bounds: Recent[tuple[str, int], int] = Recent(1024)
_exact: Recent[tuple[str, str, int, int], int] = Recent(1024)


class OverShared(RuntimeError):
    """A kernel needs more shared memory than a program may have; the message is Triton's own."""

    def __init__(self, required: int, limit: int):
        super().__init__(
            f"out of resource: shared memory, Required: {required}, Hardware limit: {limit}. "
            "Reducing block sizes or `num_stages` may help."
        )


class PassesFailed(RuntimeError):
    """Triton's passes for the target failed on the kernel; the message is their own."""


def shared_bytes(function: Function, ttir: str, spec: GPUSpec, num_warps: int, num_stages: int) -> int | None:
    """Return the shared bytes of one program if they had to be determined exactly; None for kernels that certainly fit.

    Raises :class:`OverShared` when the target has less, :class:`PassesFailed` when Triton's passes fail.
    """
    key = (ttir, num_stages)
    bound = _bounds.get(key)
    if bound is None:
        bound = _bounds[key] = shared_bound(function, ttir, num_stages)
    if bound <= spec.max_smem_per_block:
        return None
    found = exact_shared(ttir, spec, num_warps, num_stages)
    if found > spec.max_smem_per_block:
        raise OverShared(found, spec.max_smem_per_block)
    return found


def shared_bound(function: Function, ttir: str, num_stages: int) -> int:
    """Return an upper bound on the shared bytes of a program: pipelined operands, plus the largest block for
    conversions.

    A loop around ``tt.dot``, or with ``tl.range(num_stages=...)``, keeps one copy of what it loads for each stage; an
    operand of ``tt.dot`` that comes from registers is stored there once. Changing a block's layout takes at most its
    size, and only one such change happens at a time.
    """
    named = [int(text) for text in _STAGES.findall(ttir)]
    stages = max(1, num_stages, *named)
    largest, operands = 0, 0
    for op in walk(function.body):
        for value in (*op.operands, *op.results):
            largest = max(largest, _nbytes(value.type))
        if op.name in ("tt.dot", "tt.dot_scaled"):
            operands += sum(_nbytes(value.type) for value in op.operands[:2]) * stages
        elif op.name == "tt.load" and named:
            operands += _nbytes(op.results[0].type) * stages
    return operands + largest


def _nbytes(type_: Type) -> int:
    return type_.numel * elem_bytes(type_.elem) if type_.is_block else 0


def exact_shared(ttir: str, spec: GPUSpec, num_warps: int, num_stages: int) -> int:
    """Return the shared bytes of one program on ``spec``, from Triton's passes; cached.

    They run in a child process, so input that crashes them ends the child, not the device. Raises
    :class:`PassesFailed`.
    """
    key = (ttir, spec.name, num_warps, num_stages)
    found = _exact.get(key)
    if found is None:
        allocate = partial(_allocate, spec, num_warps, num_stages)
        found = with_or_without(ttir, lambda text: _in_child(allocate, text.encode()), PassesFailed)
        _exact[key] = found
    return found


def with_or_without(ttir: str, work: Callable[[str], Answer], failed: type[Exception]) -> Answer:
    """What ``work`` makes of a kernel; where it fails, of the same kernel with all warps alike.

    Here descriptors are pointers already (``host/triton_frontend.py``), which the passes that give warps different
    parts of a loop may not take, as they take the descriptors on a GPU.
    """
    try:
        return work(ttir)
    except failed:
        plain = _SPECIALISED.sub("", ttir)
        if plain == ttir:
            raise
        return work(plain)


def _allocate(spec: GPUSpec, num_warps: int, num_stages: int) -> int:
    """In the child: run TTIR from standard input through the target's passes up to the allocation of shared memory."""
    from triton._C.libtriton import ir, passes

    warps = {"num_warps": num_warps, "num_stages": num_stages}
    module, _, _ = lower_to_ttgir("-", spec.backend, spec.arch, spec.warp_size, warps)
    manager = ir.pass_manager(module.context)
    passes.convert.add_scf_to_cf(manager)
    if spec.vendor == "nvidia":
        from triton._C.libtriton import nvidia

        passes.ttgpuir.add_allocate_warp_groups(manager)
        nvidia.passes.ttgpuir.add_allocate_shared_memory_nv(manager, spec.arch, PTX_VERSION)
    else:
        from triton._C.libtriton import amd

        amd.passes.ttgpuir.add_allocate_shared_memory(manager)
    manager.run(module, "shared_memory")
    return int(module.get_int_attr("ttg.shared"))


def _in_child(work: Callable[[], int], text: bytes) -> int:
    """Run ``work`` in a forked process with ``text`` on its standard input; return the number it produces."""
    read_text, write_text = os.pipe()
    read_answer, write_answer = os.pipe()
    pid = os.fork()
    if pid == 0:
        _be_child(work, read_text, write_answer)
    os.close(read_text)
    os.close(write_answer)
    try:
        with contextlib.suppress(BrokenPipeError), os.fdopen(write_text, "wb") as pipe:
            pipe.write(text)
        answer = _answer(read_answer)
    finally:
        os.close(read_answer)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    if not answer.isdigit():
        raise PassesFailed(answer or "the compiler died on this kernel")
    return int(answer)


def _be_child(work: Callable[[], int], read_text: int, write_answer: int) -> None:
    """Run as the child: never returns, and keeps only the two pipes of the parent."""
    try:
        os.dup2(read_text, 0)
        os.dup2(write_answer, 3)
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        os.dup2(null, 2)
        os.closerange(4, 4096)
        try:
            answer = str(work())
        except Exception as error:
            answer = f"{type(error).__name__}: {error}"
        os.write(3, answer.encode()[:4000])
    finally:
        os._exit(0)


def _answer(descriptor: int) -> str:
    """Return everything the child writes until it ends, or an error after :data:`SECONDS`."""
    end = time.monotonic() + SECONDS
    parts: list[bytes] = []
    while True:
        ready, _, _ = select.select([descriptor], [], [], max(0.0, end - time.monotonic()))
        if not ready:
            return f"the compiler gave no answer within {SECONDS:g} s"
        part = os.read(descriptor, 4096)
        if not part:
            return b"".join(parts).decode("utf-8", "replace")
        parts.append(part)


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
    ttir: str, spec: GPUSpec, *, num_warps: int, num_stages: int, options: Mapping[str, Any] | None = None
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


def text_for_target(spec: GPUSpec, ttir: str, options: dict[str, Any], stage: str) -> str:
    """Return a kernel, with the backend's ``options``, as a stage leaves it: "ttgir", "llir", and "ptx" or "amdgcn".

    Raises:
        TargetCompileError: the compiler's own error, ``KeyError`` among them for a stage that the target lacks.
    """
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


_version = lru_cache(version)


def _cached(request: dict[str, Any]) -> dict[str, Any]:
    text = json.dumps([_version("triton"), request], sort_keys=True)
    if text in _memory:
        return _memory[text]
    try:
        kept = kept_or_made("compile", lambda: json.dumps(_compiler.ask(request, TIMEOUT_SECONDS)).encode(), text)
    except ProcessFailure as error:  # it may be the machine's: tried again next time
        return {"error": CRASH, "message": f"the compiler failed on this kernel: {error}"}
    answer: dict[str, Any] = json.loads(kept)
    _memory[text] = answer
    return answer


CRASH = "CompilerCrash"
_compiler = JsonProcess("drkernel.sim.compile_worker")
atexit.register(_compiler.close)
