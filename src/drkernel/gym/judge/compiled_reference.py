"""The modelled time of a reference under ``torch.compile``, for ``--baseline compile`` on a simulated GPU.

PyTorch's compiler itself runs (``sim/inductor.py``), in a process that is kept for each card.
"""

import atexit
import json
import os
import select
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from importlib.metadata import version
from typing import Any, BinaryIO

import torch

from drkernel.base.files import kept_or_made
from drkernel.base.procs import JsonProcess, ProcessFailure
from drkernel.digest import source_digest
from drkernel.gym.judge.memory import bound_this_process, default_budget
from drkernel.gym.sandbox import linux
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
    return Profile.model_validate_json(kept_or_made("torch_compile", lambda: _compiled(source, spec, conv_tf32), *key))


def _compiled(source: str, spec: GPUSpec, conv_tf32: bool) -> bytes:
    """The profile as JSON."""
    request = {
        "source": source, "conv_tf32": conv_tf32, "seconds": COMPILE_SECONDS, "memory_bytes": default_budget()
    }  # fmt: skip
    try:
        answer = _compiler_for(spec).ask(request, COMPILE_SECONDS + START_SECONDS)
    except ProcessFailure as error:
        raise NotCompiled(f"the compiler: {error}") from error
    if "error" in answer:
        raise NotCompiled(answer["error"])
    return Profile.model_validate(answer["profile"]).model_dump_json().encode()


@lru_cache(maxsize=4)
def _compiler_for(spec: GPUSpec) -> JsonProcess:
    """One process for each card, which knows it before the first reference."""
    compiler = JsonProcess("drkernel.gym.judge.compiled_reference", spec.model_dump_json(), START_SECONDS)
    atexit.register(compiler.close)
    return compiler


# ---- the process that compiles references: one fork each


TAIL = 1 << 24
"""most bytes of an answer"""
LOOK_SECONDS = 1.0
"""seconds between checks that the judge still lives"""


def main(requests_fd: int, answers_fd: int) -> None:
    """Answer requests, one JSON object per line, until the pipe closes."""
    with open(requests_fd, "rb") as requests, open(answers_fd, "wb", buffering=0) as answers:
        serve(requests, answers)


def serve(requests: BinaryIO, answers: BinaryIO) -> None:
    """Read the card first, then references."""
    spec = GPUSpec.model_validate_json(requests.readline())
    _rehearse(spec)
    answers.write(b"{}\n")
    for line in requests:
        answers.write(_forked(json.loads(line), spec, requests, answers) + b"\n")


def _rehearse(spec: GPUSpec) -> None:
    """Compile something small, so that the compilers are imported and initialised before forking."""
    from drkernel.sim.inductor import compiled_profile

    torch.set_num_threads(1)
    with _folder():
        compiled_profile(
            lambda: (torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU()), [torch.ones(64, 64)]), spec
        )


def _forked(request: dict[str, Any], spec: GPUSpec, *inherited: BinaryIO) -> bytes:
    """Answer one request in a child; there is an answer whatever happens to the child."""
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        with suppress(BaseException):
            linux.prctl(linux.PR_SET_PDEATHSIG, signal.SIGKILL)
            os.setpgid(0, 0)
            for stream in inherited:
                os.close(stream.fileno())
            with open(write_end, "wb") as answer:
                answer.write(json.dumps(_answer(request, spec)).encode())
        os._exit(0)
    os.close(write_end)
    try:
        text = _read(read_end, time.monotonic() + request["seconds"])
    finally:
        os.close(read_end)
        for kill in (os.killpg, os.kill):
            with suppress(ProcessLookupError):
                kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    if text is None:
        return _error(f"it took more than {request['seconds']:g} s")
    return text or _error("its process died")


def _read(fd: int, deadline: float) -> bytes | None:
    """Read to the end; None when the deadline passes or the judge goes away first."""
    text = b""
    judge = os.getppid()
    while len(text) < TAIL:
        left = deadline - time.monotonic()
        if left <= 0 or os.getppid() != judge:
            return None
        if not select.select([fd], [], [], min(left, LOOK_SECONDS))[0]:
            continue
        part = os.read(fd, 1 << 16)
        if not part:
            break
        text += part
    return text


def _error(message: str) -> bytes:
    return json.dumps({"error": message}).encode()


def _answer(request: dict[str, Any], spec: GPUSpec) -> dict[str, Any]:
    """Compile and price one reference; errors become text."""
    from drkernel.sim.inductor import compiled_profile
    from drkernel.tasks.reference import load_reference

    bound_this_process(request["memory_bytes"])
    try:
        with _folder():
            reference = load_reference(request["source"])
            profile = compiled_profile(
                lambda: (reference.build(0), reference.draw_inputs(0)), spec, conv_tf32=request["conv_tf32"]
            )
    except BaseException as error:  # a reference may raise anything, the compilers too
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        return {"error": f"{type(error).__name__}: {' '.join(lines[:2])[:300]}"}
    return {"profile": profile.model_dump(mode="json")}


@contextmanager
def _folder() -> Iterator[None]:
    """A directory of its own for the compilers' files."""
    with tempfile.TemporaryDirectory(prefix="drkernel-compile-", ignore_cleanup_errors=True) as path:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = os.environ["TRITON_CACHE_DIR"] = path
        yield
