"""The process that compiles TTIR to machine code, so that a crash or hang of the compiler does not affect the device.

Reads one JSON request per line (``ttir``, ``backend``, ``arch``, ``warp_size``, ``options``) and writes one JSON answer
per line: ``registers``, ``spills`` and ``shared``, or ``error`` and ``message``. A request with a ``stage`` ("ttgir",
"llir", "ptx" or "amdgcn") is answered with the ``text`` of that stage.
"""

import json
import os
import re
import subprocess
import tempfile
from pathlib import Path
from typing import IO, Any


def lower_to_ttgir(
    path: str, backend_name: str, arch: Any, warp_size: int, given: dict[str, Any]
) -> tuple[Any, dict[str, Any], dict[str, Any]]:
    """Run the TTIR at ``path`` ('-' is standard input) through the target's first stage: (module, all stages,
    metadata).

    Raises what the compiler raises.
    """
    from triton._C.libtriton import ir
    from triton.backends.compiler import GPUTarget, Language
    from triton.compiler import make_backend

    backend = make_backend(GPUTarget(backend_name, arch, warp_size))
    options = backend.parse_options(dict(given))
    context = ir.context()
    ir.load_dialects(context)
    backend.load_dialects(context)
    module = ir.parse_mlir_module(path, context)
    module.context = context
    stages: dict[str, Any] = {}
    backend.add_stages(stages, options, Language.TRITON)
    metadata: dict[str, Any] = dict(options.__dict__)
    return stages["ttgir"](module, metadata), stages, metadata


def compile_request(request: dict[str, Any]) -> dict[str, Any]:
    """Compile one kernel with Triton's own stages for the target. Raises what the compiler raises."""
    arch = request["arch"]
    with tempfile.TemporaryDirectory(prefix="drkernel-compile-") as folder:
        path = Path(folder) / "kernel.ttir"
        path.write_text(request["ttir"], encoding="utf-8")
        target = (request["backend"], arch, request["warp_size"])
        module, stages, metadata = lower_to_ttgir(str(path), *target, request["options"])
        assembly = "ptx" if request["backend"] == "cuda" else "amdgcn"
        wanted = request.get("stage", "")
        if wanted not in ("", "ttgir", "llir", assembly):
            raise KeyError(wanted)
        for stage in ("llir", assembly):
            if wanted == "ttgir":
                break
            module = stages[stage](module, metadata)
            if stage == wanted:
                break
        if wanted:
            return {"text": str(module)}
        if assembly == "ptx":
            registers, spills = _ptxas(module, arch, folder)
        else:
            registers, spills = _amd_counts(module)
    return {"registers": registers, "spills": spills, "shared": metadata["shared"] or 0}


def _ptxas(ptx: str, arch: int, folder: str) -> tuple[int, int]:
    """Return (registers per thread, spilled words per thread) from the assembler that Triton bundles."""
    from triton.backends.nvidia.compiler import get_ptxas

    source = Path(folder) / "kernel.ptx"
    source.write_text(ptx, encoding="utf-8")
    target = f"sm_{arch}{'a' if arch >= 90 else ''}"
    command = [get_ptxas(arch).path, "-v", f"--gpu-name={target}", str(source), "-o", str(source.with_suffix(".cubin"))]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"ptxas failed: {done.stderr.strip() or done.returncode}")
    registers = re.search(r"Used (\d+) registers", done.stderr)
    stack = re.search(r"(\d+) bytes stack frame", done.stderr)
    if registers is None:
        raise RuntimeError(f"ptxas reported no register count: {done.stderr.strip()}")
    return int(registers.group(1)), int(stack.group(1)) // 4 if stack else 0


def _amd_counts(assembly: str) -> tuple[int, int]:
    """Return (vector registers per thread, spilled ones) from the kernel's metadata in the assembly."""
    counts = {key: re.search(rf"\.{key}:\s+(\d+)", assembly) for key in ("vgpr_count", "vgpr_spill_count")}
    if counts["vgpr_count"] is None:
        raise RuntimeError("the AMD backend's assembly names no register count")
    spilled = counts["vgpr_spill_count"]
    return int(counts["vgpr_count"].group(1)), int(spilled.group(1)) if spilled else 0


def _answer(line: str, diagnostics: IO[bytes]) -> dict[str, Any]:
    try:
        return compile_request(json.loads(line))
    except Exception as error:
        diagnostics.seek(0)
        written = diagnostics.read().decode("utf-8", "replace")
        reasons = [text.strip() for text in written.splitlines() if "error:" in text]
        return {"error": type(error).__name__, "message": "\n".join([str(error), *reasons[:3]])}


def main(requests_fd: int, answers_fd: int) -> None:
    """Answer requests until their pipe ends."""
    with (
        open(requests_fd, encoding="utf-8") as requests,
        open(answers_fd, "w", encoding="utf-8") as answers,
        tempfile.TemporaryFile("w+b") as diagnostics,  # the compiler writes what it objects to on standard error
    ):
        for descriptor in (1, 2):
            os.dup2(diagnostics.fileno(), descriptor)
        for line in requests:
            diagnostics.seek(0)
            diagnostics.truncate()
            answers.write(json.dumps(_answer(line, diagnostics)) + "\n")
            answers.flush()
