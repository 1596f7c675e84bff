"""A process of our own that answers questions: started at first use, replaced when it dies or hangs."""

import json
import os
import select
import subprocess
import sys
import threading
import time
from contextlib import suppress
from typing import Any, BinaryIO


class ProcessFailure(Exception):
    """The process died or gave no answer in time; ``str`` says which."""


class JsonProcess:
    """A Python process that runs ``MODULE.main(requests_fd, answers_fd)``: a line of JSON in, a line of JSON out.

    It sees the ends of two pipes and no other of our files; what it prints is dropped. It has to end when the pipe of
    requests does. A fork of its owner starts another. Thread-safe.
    """

    def __init__(self, module: str, first: str | None = None, start_s: float = 0.0):
        """``first`` is sent before all requests and answered within ``start_s`` seconds."""
        self.module, self.first, self.start_s = module, first, start_s
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._owner = 0

    @property
    def pid(self) -> int | None:
        """The process id, while it runs."""
        return self._process.pid if self._process is not None else None

    def ask(self, request: dict[str, Any], seconds: float) -> dict[str, Any]:
        """The answer to a request. Raises :class:`ProcessFailure`."""
        with self._lock:
            if self._process is None or self._process.poll() is not None or self._owner != os.getpid():
                self._start()
            return self._answer(json.dumps(request), seconds)

    def close(self) -> None:
        """End the process, if this process started it."""
        if self._process is not None and self._owner == os.getpid():
            self._process.kill()
            self._process.wait()
            self._requests.close()
            self._answers.close()
        self._process = None

    def _start(self) -> None:
        theirs_in, ours_out = os.pipe()
        ours_in, theirs_out = os.pipe()
        paths = [path for path in sys.path if path]
        code = f"import sys; sys.path[:0] = {paths!r}; from {self.module} import main; main({theirs_in}, {theirs_out})"
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-c", code], pass_fds=(theirs_in, theirs_out), stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            )  # fmt: skip
        finally:
            os.close(theirs_in)
            os.close(theirs_out)
        self._owner = os.getpid()
        self._requests: BinaryIO = os.fdopen(ours_out, "wb", buffering=0)
        self._answers: BinaryIO = os.fdopen(ours_in, "rb", buffering=0)
        if self.first is not None:
            self._answer(self.first, self.start_s)

    def _answer(self, line: str, seconds: float) -> dict[str, Any]:
        text, deadline = b"", time.monotonic() + seconds
        with suppress(OSError):
            self._requests.write(line.encode() + b"\n")
        while not text.endswith(b"\n"):
            if not select.select([self._answers], [], [], max(0.0, deadline - time.monotonic()))[0]:
                self.close()
                raise ProcessFailure(f"no answer within {seconds:g} s")
            part = self._answers.read(1 << 16)
            if not part:
                assert self._process is not None
                code, self._process = self._process.wait(), None
                raise ProcessFailure(f"the process died (exit status {code})")
            text += part
        answer: dict[str, Any] = json.loads(text)
        return answer
