"""Tools that hurt a service: processes to kill, a proxy that cuts connections, a small disk to fill, a lock to hold."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from drkernel.gym.request import EvalRequest, EvalSettings
from drkernel.task import Provenance, Task

SERVER = """
import asyncio, json, sys
from drkernel.serve.app import make_app
from drkernel.serve.service import Service, ServiceTerms
from drkernel.serve.store import Store
from drkernel.verdict import Verdict
import uvicorn

path, port, log, slots, ray = sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4]), sys.argv[5]

def verdict(request):
    with open(log, "a") as file:
        file.write(request.key + "\\n")
    return Verdict(status="correct", task_id=request.task.id, candidate_sha256="0" * 64,
                   device=request.settings.device, baseline=request.settings.baseline)

class Pool:
    async def evaluate(self, request):
        done = verdict(request)
        await asyncio.sleep(0.02)
        return done
    def health(self): return {}
    async def close(self): pass

if ray:
    from drkernel.serve.worker import Lending, RayWorkers
    def make_pool(slots):
        class Slow(Pool):
            async def evaluate(self, request):
                done = verdict(request)
                await asyncio.sleep(0.25)
                return done
        return Slow()
    RayWorkers.beside(ray, "127.0.0.1", port, Lending("", make_pool=make_pool))
service = Service(Store(path), Pool() if slots else None, slots=slots, terms=ServiceTerms(lease_s=2.0, grace_s=1.0))
uvicorn.run(make_app(service), host="127.0.0.1", port=port, log_level="critical")
"""
"""a service with an evaluator that takes some milliseconds: STORE PORT LOG SLOTS RAY-ADDRESS"""

WORKER = """
import asyncio, sys
from drkernel.serve.client import AsyncClient
from drkernel.serve.worker import Worker
from drkernel.verdict import Verdict

class Pool:
    async def evaluate(self, request):
        with open(sys.argv[2], "a") as file:
            file.write(request.key + "\\n")
        await asyncio.sleep(0.05)
        return Verdict(status="correct", task_id=request.task.id, candidate_sha256="0" * 64,
                       device=request.settings.device, baseline=request.settings.baseline)

async def main():
    async with AsyncClient(sys.argv[1], retries=30) as client:
        await Worker(client, Pool(), slots=2).run()

asyncio.run(main())
"""
"""a remote worker: URL LOG"""


def request(number: int) -> EvalRequest:
    """A request of its own."""
    reference = "class Model: ...\ndef get_inputs(): return []\ndef get_init_inputs(): return []\n"
    return EvalRequest(
        task=Task(id=f"fault/{number}", level=1, reference=reference, provenance=Provenance(source="benchmark")),
        candidate=f"class ModelNew:\n    number = {number}\n",
        settings=EvalSettings(profile=None),
    )


def start(code: str, *arguments: str) -> subprocess.Popen[bytes]:
    """A child process in a group of its own."""
    return subprocess.Popen([sys.executable, "-c", code, *arguments], start_new_session=True)


def kill(process: subprocess.Popen[bytes]) -> None:
    """SIGKILL to the whole group."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


class Proxy:
    """TCP between clients and a server, cutting connections in the middle of requests and of responses.

    With probability ``share`` a connection is cut (reset, both sides) once so many bytes of one direction went through;
    the direction and the number are drawn. ``port`` 0 is any that is free.
    """

    def __init__(self, port: int, target: int, rng: random.Random, share: float = 1.0):
        self.port, self.target, self.rng, self.share = port, target, rng, share
        self.cuts = {"request": 0, "response": 0}
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Proxy:
        self._server = await asyncio.start_server(self._connect, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(self._pass_on(reader, writer))
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            back_reader, back_writer = await asyncio.open_connection("127.0.0.1", self.target)
        except OSError:
            writer.transport.abort()
            return
        direction = self.rng.choice(["request", "response"]) if self.rng.random() < self.share else None
        budget = self.rng.randrange(1, 8000)

        async def pipe(name: str, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
            left = budget if name == direction else None
            with contextlib.suppress(OSError):
                while data := await source.read(65536):
                    if left is not None and len(data) >= left:
                        sink.write(data[:left])
                        await sink.drain()
                        self.cuts[name] += 1
                        break
                    left = left - len(data) if left is not None else None
                    sink.write(data)
                    await sink.drain()
            writer.transport.abort()
            back_writer.transport.abort()

        await asyncio.gather(pipe("request", reader, back_writer), pipe("response", back_reader, writer))


class SmallDiskError(RuntimeError):
    """No small disk can be mounted here."""


@contextlib.contextmanager
def small_disk(mebibytes: int) -> Iterator[Path]:
    """A tmpfs of that size. Raises :class:`SmallDiskError` where mounting is not allowed."""
    with tempfile.TemporaryDirectory() as folder:
        mounted = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={mebibytes}m", "tmpfs", folder], capture_output=True, text=True
        )
        if mounted.returncode:
            raise SmallDiskError(f"cannot mount a tmpfs (root is needed): {mounted.stderr.strip()}")
        try:
            yield Path(folder)
        finally:
            subprocess.run(["umount", "-l", folder], check=True)


def fill(disk: Path) -> Path:
    """Take all room that is left; the file to delete again."""
    ballast = disk / "ballast"
    with ballast.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(b"\0" * 4096)
    return ballast


@contextlib.contextmanager
def locked(store: Path) -> Iterator[None]:
    """Hold the store's write lock, as another program could."""
    other = sqlite3.connect(store, isolation_level=None, timeout=30.0)
    other.execute("BEGIN IMMEDIATE")
    try:
        yield
    finally:
        other.execute("ROLLBACK")
        other.close()
