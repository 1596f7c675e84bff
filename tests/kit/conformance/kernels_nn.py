"""Kernels of neural networks: softmax for test_shapes.py, layer norm, a chunked scan, quantization."""

from collections.abc import Iterator

import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice

from conformance_cases import Check, case, randint, randn


@triton.jit
def softmax_kernel(x, out, stride, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    k = tl.arange(0, BLOCK)
    value = tl.load(x + row * stride + k, mask=k < cols, other=-float("inf"))
    value = value.to(tl.float32)
    numerator = tl.exp(value - tl.max(value, 0))
    tl.store(out + row * cols + k, (numerator / tl.sum(numerator, 0)).to(out.dtype.element_ty), mask=k < cols)


@triton.jit
def layer_norm_kernel(x, w, b, out, mean_out, rstd_out, cols, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    total = tl.zeros((BLOCK,), tl.float32)
    for at in range(0, cols, BLOCK):
        k = at + tl.arange(0, BLOCK)
        total += tl.load(x + row * cols + k, mask=k < cols, other=0.0).to(tl.float32)
    mean = tl.sum(total, 0) / cols
    squares = tl.zeros((BLOCK,), tl.float32)
    for at in range(0, cols, BLOCK):
        k = at + tl.arange(0, BLOCK)
        value = tl.load(x + row * cols + k, mask=k < cols, other=0.0).to(tl.float32)
        value = tl.where(k < cols, value - mean, 0.0)
        squares += value * value
    rstd = 1 / tl.sqrt(tl.sum(squares, 0) / cols + eps)
    tl.store(mean_out + row, mean)
    tl.store(rstd_out + row, rstd)
    for at in range(0, cols, BLOCK):
        k = at + tl.arange(0, BLOCK)
        value = tl.load(x + row * cols + k, mask=k < cols, other=0.0).to(tl.float32)
        scaled = (value - mean) * rstd * tl.load(w + k, mask=k < cols) + tl.load(b + k, mask=k < cols)
        tl.store(out + row * cols + k, scaled.to(out.dtype.element_ty), mask=k < cols)


@case()
def layer_norm(device: str) -> Iterator[Check]:
    rows, cols = 9, 77
    x, w, b = randn(rows, cols), randn(cols, seed=2), randn(cols, seed=3)
    y = torch.zeros(rows, cols, device=device)
    mean, rstd = (torch.zeros(rows, device=device) for _ in range(2))
    layer_norm_kernel[(rows,)](x.to(device), w.to(device), b.to(device), y, mean, rstd, cols, 1e-5, BLOCK=32)
    want = torch.nn.functional.layer_norm(x.double(), (cols,), w.double(), b.double(), 1e-5)
    yield Check("y", y.cpu(), want, atol=2e-5)


@triton.jit
def first_order(a_left, b_left, a_right, b_right):
    return a_left * a_right, b_left * a_right + b_right


@triton.jit
def chunked_scan_kernel(gates, x, out, length, channels, CHUNK: tl.constexpr, BLOCK_D: tl.constexpr):
    """The same recurrence in chunks: an associative scan inside, a carried state between."""
    rd, rt = tl.program_id(0) * BLOCK_D + tl.arange(0, BLOCK_D), tl.arange(0, CHUNK)
    carry = tl.zeros((BLOCK_D,), tl.float32)
    for start in range(0, length, CHUNK):
        at = (start + rt)[:, None] * channels + rd[None, :]
        mask = ((start + rt) < length)[:, None] & (rd < channels)[None, :]
        gate = tl.load(gates + at, mask=mask, other=1.0)
        value = tl.load(x + at, mask=mask, other=0.0)
        product, h = tl.associative_scan((gate, value), 0, first_order)
        h = h + product * carry[None, :]
        tl.store(out + at, h, mask=mask)
        carry = tl.sum(tl.where((rt == CHUNK - 1)[:, None], h, 0.0), 0)


@case()
def mamba_chunked_scan(device: str) -> Iterator[Check]:
    gates, x = torch.sigmoid(randn(50, 24)), randn(50, 24, seed=1)
    out = torch.zeros(50, 24, device=device)
    chunked_scan_kernel[(2,)](gates.to(device), x.to(device), out, 50, 24, CHUNK=16, BLOCK_D=16)
    h, want = torch.zeros(24, dtype=torch.float64), []
    for t in range(50):
        h = gates[t].double() * h + x[t].double()
        want.append(h)
    yield Check("h", out.cpu(), torch.stack(want), atol=1e-5)


@triton.jit
def quantize_kernel(x, scales, out, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    k = tl.arange(0, BLOCK)
    value = tl.load(x + row * cols + k, mask=k < cols, other=0.0)
    scale = tl.max(tl.abs(value), 0) / 127.0
    tl.store(scales + row, scale)
    tl.store(out + row * cols + k, libdevice.rint(value / scale).to(tl.int8), mask=k < cols)


@triton.jit
def unpack_kernel(packed, out, n, BLOCK: tl.constexpr):
    k = tl.arange(0, BLOCK)
    byte = tl.load(packed + k, mask=k < n, other=0)
    low, high = (byte & 0xF).to(tl.int8) - 8, ((byte >> 4) & 0xF).to(tl.int8) - 8
    tl.store(
        out + tl.arange(0, 2 * BLOCK), tl.interleave(low, high).to(tl.float16), mask=tl.arange(0, 2 * BLOCK) < 2 * n
    )


@case(interpreter=False)
def quantization(device: str) -> Iterator[Check]:
    x = randn(4, 100)
    scales, out = torch.zeros(4, device=device), torch.zeros(4, 100, dtype=torch.int8, device=device)
    quantize_kernel[(4,)](x.to(device), scales, out, 100, BLOCK=128)
    scale = x.abs().amax(1) / 127
    yield Check("int8", out.cpu(), (x / scale[:, None]).round().to(torch.int8))
    packed = randint(0, 256, (60,), dtype=torch.uint8)
    wide = torch.zeros(120, dtype=torch.float16, device=device)
    unpack_kernel[(1,)](packed.to(device), wide, 60, BLOCK=64)
    want = torch.stack([(packed & 15).half() - 8, (packed >> 4).half() - 8], 1).flatten()
    yield Check("int4", wide.cpu(), want)
