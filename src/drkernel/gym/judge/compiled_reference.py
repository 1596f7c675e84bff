"""The modelled time of a reference under ``torch.compile``, for ``--baseline compile`` on a simulated GPU.

PyTorch's compiler itself runs (``sim/inductor/``), in a process that is kept for each card.
"""

from __future__ import annotations

import atexit
import hashlib
import json
import os
import select
import subprocess
import sys
import threading
from contextlib import suppress
from functools import lru_cache
from importlib.metadata import version
from typing import Any

import torch

from drkernel.digest import source_digest
from drkernel.gym.judge.memory import default_budget
from drkernel.sim.spec import GPUSpec
from drkernel.sim.target.compile import cache_folder, store
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
    parts = [source, spec.model_dump_json(), str(conv_tf32), torch.__version__, version("triton"), source_digest("sim")]
    key = hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()
    file = cache_folder().parent / "torch_compile" / f"{key}.json"
    with suppress(OSError, ValueError):
        return Profile.model_validate_json(file.read_text(encoding="utf-8"))
    profile = _compiler_for(spec).profile(source, conv_tf32)
    store(file, profile.model_dump(mode="json"))
    return profile


class Compiler:
    """One compile process, started at its first use."""

    def __init__(self, spec: GPUSpec):
        self.spec = spec
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None

    def profile(self, source: str, conv_tf32: bool) -> Profile:
        """Compile and price a reference. Raises :class:`NotCompiled`."""
        request = {
            "source": source, "conv_tf32": conv_tf32, "seconds": COMPILE_SECONDS, "memory_bytes": default_budget()
        }  # fmt: skip
        with self._lock:
            if self._process is None or self._process.poll() is not None:
                self._start()
            answer = self._ask(json.dumps(request), COMPILE_SECONDS + START_SECONDS)
        if "error" in answer:
            raise NotCompiled(answer["error"])
        return Profile.model_validate(answer["profile"])

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def _start(self) -> None:
        theirs_in, ours_out = os.pipe()
        ours_in, theirs_out = os.pipe()
        paths = [path for path in sys.path if path]
        code = f"import sys; sys.path[:0] = {paths!r}; from drkernel.gym.judge.compile_process import main; "
        code += f"main({theirs_in}, {theirs_out})"
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-c", code], pass_fds=(theirs_in, theirs_out), stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            )  # fmt: skip
        finally:
            os.close(theirs_in)
            os.close(theirs_out)
        self._requests, self._answers = os.fdopen(ours_out, "wb", buffering=0), os.fdopen(ours_in, "rb", buffering=0)
        self._ask(self.spec.model_dump_json(), START_SECONDS)

    def _ask(self, line: str, seconds: float) -> dict[str, Any]:
        """Send a line and wait for the answer."""
        text = b""
        with suppress(OSError):
            self._requests.write(line.encode() + b"\n")
            while not text.endswith(b"\n"):
                if not select.select([self._answers], [], [], seconds)[0]:
                    break
                part = self._answers.read(1 << 16)
                if not part:
                    break
                text += part
        if not text.endswith(b"\n"):
            self.close()
            raise NotCompiled("the process of the compiler does not answer")
        answer: dict[str, Any] = json.loads(text)
        return answer


@lru_cache(maxsize=4)
def _compiler_for(spec: GPUSpec) -> Compiler:
    compiler = Compiler(spec)
    atexit.register(compiler.close)
    return compiler
