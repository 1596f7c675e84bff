"""A runner that is wholly under the candidate's control speaks the protocol as badly as it can.

Whatever it says, the verdict is the candidate's own (never ``infra_error``, which is masked in training and could be
asked for), nothing is raised, and the judge's memory does not grow with what is announced.
"""

import itertools
import json
import random
import resource
import socket
import struct
import threading
from types import SimpleNamespace

import pytest
import torch
from torch.utils._pytree import tree_map

from corpus_sources import module
from drkernel.gym.runner.values import Granted, unpack
from drkernel.gym.session.cuda import CudaSession
from drkernel.gym.session.simulated import SimulatedSession
from drkernel.sim.process.device_server import serve_device
from drkernel.sim.wire.frames import bytes_of, describe, receive, tensor_of
from drkernel.task import Task
from gym_harness import grade

IDENTITY = module("x", {"x": "torch.randn(4, 5)"}, layers={"scale": "torch.nn.Parameter(torch.rand(3))"})
GROWTH = 400 << 20
"""bytes that a campaign may add to the process: torch's own, and messages up to their limits"""

HUGE = [2**31, 2**63, 2**64 + 1, 10**40, -1, -(2**70), 0, 10**4000]
WORDS = ["", "x" * 5000, "float32", "\ud800", "cpu", "cuda:0", "../..", "\0"]


def deep(kind, depth=900):
    """Nested lists or objects."""
    value = 1
    for _ in range(depth):
        value = [value] if kind == "list" else {"o": [[value, value]]} if kind == "pairs" else {"u": [value]}
    return value


def hostile(rng):
    """One value that nobody expects."""
    choices = (
        lambda: rng.choice(HUGE),
        lambda: rng.choice([float("inf"), float("-inf"), float("nan"), 1e308, 0.5, True, None]),
        lambda: rng.choice(WORDS),
        lambda: [rng.choice(HUGE)] * rng.choice([1, 70, 3000]),
        dict,
        lambda: {rng.choice(["f", "c", "d", "g", "u", "o", "x", "handle"]): hostile(rng)},
        lambda: {"f": rng.choice(["nan", "1e999", 10**400, [], {}])},
        lambda: {"x": {"dtype": "float32", "shape": [rng.choice(HUGE)] * 3, "at": [0, rng.choice(HUGE)]}},
        lambda: {"value": hostile(rng)},
        lambda: {"handle": hostile(rng), "type": hostile(rng), "device": hostile(rng), "shape": hostile(rng)},
        lambda: deep(rng.choice(["list", "tuple"])),
        lambda: [{"value": 1}] * rng.choice([0, 2, 300]),
    )
    return rng.choice(choices)()


def paths(value, path=()):
    """Every place in a tree of lists and objects."""
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield from paths(item, (*path, key))


def spoilt(value, rng):
    """A copy with one place replaced, dropped, or doubled."""
    value = json.loads(json.dumps(value))
    path = rng.choice(list(paths(value)))
    if not path:
        return hostile(rng)
    holder = value
    for key in path[:-1]:
        holder = holder[key]
    if rng.random() < 0.25:
        del holder[path[-1]]
    else:
        holder[path[-1]] = hostile(rng)
    return value


def frame(text, payload=b"", *, head=None, size=None):
    """A message whose sizes may lie."""
    head, size = len(text) if head is None else head, len(payload) if size is None else size
    return struct.pack("<IQ", head, size) + text + payload


class HostileRunner(threading.Thread):
    """Answers well until a secret moment, then once as badly as ``seed`` says, then well again."""

    def __init__(self, sock, seed, cuda):
        super().__init__(daemon=True)
        self.sock, self.cuda = sock, cuda
        self.rng = random.Random(seed)
        self.left = self.rng.randrange(9)
        self.tensors, self.next = {}, itertools.count(1)

    def run(self):
        try:
            self.say({"layers": [], "missing": {}})
            while True:
                header, payload = receive(self.sock)
                self.data = b""
                answer = {"ok": self.honest(header, payload), "nonce": header["nonce"]}
                self.left -= 1
                if self.left == 0:
                    self.attack(answer)
                else:
                    self.say(answer, self.data)
        except (OSError, RuntimeError):
            return
        finally:
            self.sock.close()

    def say(self, answer, payload=b""):
        self.sock.sendall(frame(json.dumps(answer).encode(), payload))

    def honest(self, header, payload):
        what = header["do"]
        if what == "load":
            return {"type": "ModelNew", "parameters": {"scale": {"shape": [3], "dtype": "float32"}}, "own": False}
        if what == "put":
            return self.keep(tensor_of(header["tensor"], payload))
        if what == "write":
            self.tensors[header["handle"]].copy_(tensor_of(header["tensor"], payload))
        if what == "read":
            self.data = bytes(bytes_of(self.tensors[header["handle"]]))
            return {**describe(self.tensors[header["handle"]]), "bytes": len(self.data)}
        if what == "call":
            return self.call(header, payload)
        return [] if what == "changed" else None

    def keep(self, tensor):
        handle = next(self.next)
        self.tensors[handle] = tensor
        return handle

    def call(self, header, payload):
        granted = []

        def argument(leaf):
            if isinstance(leaf, Granted):
                return leaf.spec.handle
            granted.append(self.keep(leaf))
            return granted[-1]

        (handle,) = tree_map(argument, unpack(header["inputs"], payload))
        claim = {"handle": handle, "type": "Tensor", "device": "cuda:0", "shape": [4, 5], "stride": [5, 1]}
        claim["dtype"] = "float32"
        if self.cuda:
            self.data = bytes(bytes_of(self.tensors[handle]))
            claim |= {"bytes": len(self.data), "storage": handle << 20, "address": handle << 20}
        answer = {"outputs": [claim], "type": "Tensor"}
        more = {"granted": granted, "mutated": [], "launches": [], "operators": {"aten.x": 1}}
        return {**answer, **more} if self.cuda else answer

    def attack(self, answer):
        rng, text = self.rng, json.dumps(answer).encode()
        kind = rng.randrange(12)
        if kind < 6:
            if rng.random() < 0.2:
                error = {"kind": "runtime_error", "type": "E", "message": "m", "traceback": None, "line": 3}
                answer = {"error": error, "nonce": answer["nonce"]}
            bad = spoilt(answer, rng)
            if isinstance(bad, dict) and rng.random() < 0.9:
                bad["nonce"] = answer["nonce"]
            self.say(bad, self.data if rng.random() < 0.5 else b"")
        elif kind == 6:
            self.sock.sendall(frame(text, self.data, head=rng.choice([0, 1, 2**32 - 1, len(text) + 7])))
        elif kind == 7:
            self.sock.sendall(frame(text, self.data, size=rng.choice([2**63, 2**40, 1 << 33, 1 << 28])))
            self.flood()
        elif kind == 8:
            self.sock.sendall(rng.randbytes(rng.choice([1, 12, 500])))
            self.sock.close()
        elif kind == 9:
            self.sock.sendall(frame(rng.choice([b"[" * 100_000, b'{"a":' * 90_000, b"\xff" * 50, b"1" * 100_000])))
        elif kind == 10:
            self.sock.close()
        else:
            self.sock.sendall(frame(text[: len(text) // 2], head=len(text)))
            self.sock.close()

    def flood(self):
        block = bytes(1 << 20)
        for _ in range(64):
            self.sock.sendall(block)


class Job:
    """What a session needs of a job whose processes are threads of this test."""

    def __init__(self, seed, device, cuda):
        self.result, theirs = socket.socketpair()
        self.terms = SimpleNamespace(device=device)
        self.control, self.output_limit, self.failure = None, 0, None
        self.text, self.dropped, self.pids, self.id = bytearray(), 0, {}, seed
        self.threads = [HostileRunner(theirs, seed, cuda)]
        if not cuda:
            self.control, device_control = socket.socketpair()
            self.host, device_host = socket.socketpair()
            arguments = ("h200", device_host, device_control)
            self.threads.append(threading.Thread(target=serve_device, args=arguments, daemon=True))
        for thread in self.threads:
            thread.start()

    def wait_until_gone(self, seconds):
        pass

    def wait_for_exit(self, seconds):
        return {"runner": {"over_memory": False, "over_time": False, "status": 0}}


class HostileFactory:
    """Opens sessions on hostile runners."""

    def __init__(self, seed):
        self.seed = seed
        self.launcher = SimpleNamespace(alive=True, kill=self.kill, drain=lambda job: None, log=lambda: "")

    def open(self, settings):
        cuda = settings.device.startswith("cuda")
        kind = CudaSession if cuda else SimulatedSession
        return kind(self.launcher, settings, Job(self.seed, settings.device, cuda=cuda))

    @staticmethod
    def kill(job):
        for sock in (job.result, job.control):
            if sock is not None:
                sock.close()
        for thread in job.threads:
            thread.join(20)
            assert not thread.is_alive()


def campaign(seeds, device):
    """Statuses of one verdict a seed."""
    task, terms = Task(id="identity", reference=IDENTITY), {"deadline_s": 0.6, "memory_bytes": 256 << 20}
    statuses = []
    for seed in seeds:
        verdict = grade(task, f"# {seed}", HostileFactory(seed), device=device, timing=False, seed=seed, **terms)
        assert verdict.status != "infra_error", (seed, verdict.error)
        verdict.model_dump_json()
        statuses.append(verdict.status)
    return statuses


def peak_bytes():
    """The most memory that this process has ever held."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


@pytest.mark.parametrize("device", ["sim:h200", "cuda:0"])
def test_a_hostile_runner_never_makes_it_the_judges_fault(device):
    torch.set_num_threads(1)
    campaign([0], device)
    before = peak_bytes()
    statuses = campaign(range(1, 250), device)
    assert peak_bytes() - before < GROWTH
    assert len(set(statuses)) >= 3 and statuses.count("hack") > 50


@pytest.mark.slow
@pytest.mark.parametrize("device", ["sim:h200", "cuda:0"])
def test_a_longer_campaign(device):
    before = peak_bytes()
    campaign(range(1000, 6000), device)
    assert peak_bytes() - before < GROWTH
