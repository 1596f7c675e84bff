"""Candidates that the gym's benchmarks grade: honest kernels for built-in tasks, and hostile ones with their dues."""

from __future__ import annotations

_HEAD = """import os, sys, time, ctypes, signal, threading
import torch, triton
import triton.language as tl
from torch import nn
"""

HONEST = {
    "level1/softmax": _HEAD
    + """
@triton.jit
def softmax_kernel(x_ptr, out_ptr, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    mask = offsets < cols
    x = tl.load(x_ptr + row * cols + offsets, mask=mask, other=-float("inf"))
    e = tl.exp(x - tl.max(x, axis=0))
    tl.store(out_ptr + row * cols + offsets, e / tl.sum(e, axis=0), mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        softmax_kernel[(x.shape[0],)](x, out, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
        return out
""",
    "level1/relu": _HEAD
    + """
@triton.jit
def relu_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    tl.store(out_ptr + offsets, tl.where(x > 0, x, x * 0), mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        relu_kernel[(triton.cdiv(x.numel(), 1024),)](x, out, x.numel(), BLOCK=1024)
        return out
""",
}

_FORWARD = "\nclass ModelNew(nn.Module):\n    def forward(self, *inputs):\n"
_BODIES: dict[str, tuple[str, set[str]]] = {
    "exits with code 0": ("os._exit(0)", {"runtime_error"}),
    "segmentation fault": ("ctypes.string_at(0)", {"runtime_error"}),
    "endless loop": ("while True: pass", {"timeout"}),
    "blocks in C": ("ctypes.CDLL(None).pause()", {"timeout"}),
    "memory bomb": ("hold = bytearray(8 << 30)", {"out_of_memory"}),
    "device memory bomb": ("hold = [torch.ones(1 << 26, device='cuda') for _ in range(100)]", {"out_of_memory"}),
    "fork bomb": (
        "while True:\n            try: os.fork()\n            except OSError: time.sleep(0.001)",
        {"timeout", "out_of_memory"},
    ),
    "detached daemon": (
        "if os.fork() == 0:\n            os.setsid()\n            if os.fork(): os._exit(0)\n"
        "            time.sleep(600)\n        return inputs[0]",
        {"hack", "incorrect"},
    ),
    "closed descriptors": ("os.closerange(0, 100)", {"runtime_error"}),
    "much output": ("os.write(1, b'x' * (64 << 20)); raise ValueError", {"runtime_error"}),
    "ignores signals": (
        "[signal.signal(s, signal.SIG_IGN) for s in (2, 15)]; raise KeyboardInterrupt",
        {"runtime_error"},
    ),
    "garbage to the judge": ("os.write(3, b'garbage' * 100); time.sleep(1)", {"hack", "runtime_error"}),
    "garbage to the device": ("os.write(4, b'garbage' * 100); time.sleep(9)", {"runtime_error", "timeout"}),
    "thread bomb": ("while True: threading.Thread(target=time.sleep, args=[99]).start()", {"runtime_error"}),
    "fills the scratch": ("while True: open(str(time.time_ns()), 'wb').write(bytes(50 << 20))", {"runtime_error"}),
    "reads the judge": ("open(f'/proc/{os.getppid()}/mem').read()", {"runtime_error"}),
    "returns its input": ("return inputs[0]", {"hack", "incorrect"}),
}
HOSTILE = {name: (_HEAD + _FORWARD + f"        {body}\n", statuses) for name, (body, statuses) in _BODIES.items()}
"""name -> (source, statuses a verdict on it may have)"""
