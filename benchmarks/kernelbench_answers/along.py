"""Reductions and norms along an axis that is not the last one, and over planes."""

from __future__ import annotations

REDUCE = """
@triton.jit
def reduce_kernel(x_ptr, out_ptr, length, inner, BLOCK: tl.constexpr):
    column = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    base = tl.program_id(1).to(tl.int64) * length * inner
    best = tl.full([BLOCK], NEUTRAL, tl.float32)
    place = tl.zeros([BLOCK], tl.int64)
    for step in range(length):
        x = tl.load(x_ptr + base + step.to(tl.int64) * inner + column, mask=column < inner, other=0.0)
        BODY
    tl.store(out_ptr + tl.program_id(1).to(tl.int64) * inner + column, RESULT, mask=column < inner)


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.dim = dim

    def forward(self, x):
        x = x.contiguous()
        length = x.shape[self.dim]
        inner = x.stride(self.dim)
        outer = x.numel() // (length * inner)
        shape = list(x.shape)
        shape[self.dim] = 1
        out = torch.empty(shape, device=x.device, dtype=DTYPE)
        reduce_kernel[(triton.cdiv(inner, 512), outer)](x, out, length, inner, BLOCK=512)
        return FINISH
"""

RMS = """
@triton.jit
def rms_kernel(x_ptr, out_ptr, channels, inner, eps, BLOCK: tl.constexpr):
    column = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    base = tl.program_id(1).to(tl.int64) * channels * inner
    total = tl.zeros([BLOCK], tl.float32)
    for channel in range(channels):
        x = tl.load(x_ptr + base + channel * inner + column, mask=column < inner, other=0.0)
        total += x * x
    rms = tl.sqrt(total / channels + eps)
    for channel in range(channels):
        x = tl.load(x_ptr + base + channel * inner + column, mask=column < inner, other=0.0)
        tl.store(out_ptr + base + channel * inner + column, x / rms, mask=column < inner)


class ModelNew(nn.Module):
    def __init__(self, num_features, eps=1e-5):
        super().__init__()
        self.eps = eps

    def forward(self, x):
        x = x.contiguous()
        out = torch.empty_like(x)
        batch, channels = x.shape[:2]
        inner = x.numel() // (batch * channels)
        rms_kernel[(triton.cdiv(inner, 512), batch)](x, out, channels, inner, self.eps, BLOCK=512)
        return out
"""

PLANES = """
@triton.jit
def plane_kernel(
    x_ptr, weight_ptr, bias_ptr, out_ptr, size, inner, groups, eps, AFFINE: tl.constexpr, BLOCK: tl.constexpr
):
    plane = tl.program_id(0)
    base = plane.to(tl.int64) * size
    total = tl.zeros([BLOCK], tl.float32)
    for start in range(0, size, BLOCK):
        at = start + tl.arange(0, BLOCK)
        total += tl.load(x_ptr + base + at, mask=at < size, other=0.0)
    mean = tl.sum(total, 0) / size
    squares = tl.zeros([BLOCK], tl.float32)
    for start in range(0, size, BLOCK):
        at = start + tl.arange(0, BLOCK)
        off = tl.where(at < size, tl.load(x_ptr + base + at, mask=at < size, other=0.0) - mean, 0.0)
        squares += off * off
    scale = 1.0 / tl.sqrt(tl.sum(squares, 0) / size + eps)
    for start in range(0, size, BLOCK):
        at = start + tl.arange(0, BLOCK)
        y = (tl.load(x_ptr + base + at, mask=at < size, other=0.0) - mean) * scale
        if AFFINE:
            place = (plane % groups) * (size // inner) + at // inner
            y = y * tl.load(weight_ptr + place, mask=at < size) + tl.load(bias_ptr + place, mask=at < size)
        tl.store(out_ptr + base + at, y, mask=at < size)


class ModelNew(nn.Module):
    def __init__(self, CONSTRUCTOR):
        super().__init__()
        self.NAME = MAKE

    def forward(self, x):
        x = x.contiguous()
        out = torch.empty_like(x)
        norm = self.NAME
        planes = x.shape[0] * (GROUPS)
        size = x.numel() // planes
        inner = INNER
        plane_kernel[(planes,)](
            x, norm.weight, norm.bias, out, size, inner, GROUPS, norm.eps, AFFINE=norm.weight is not None, BLOCK=4096,
            num_warps=8,
        )
        return out
"""

FROBENIUS = """
@triton.jit
def squares_kernel(x_ptr, part_ptr, n, PER: tl.constexpr, BLOCK: tl.constexpr):
    base = tl.program_id(0).to(tl.int64) * PER
    total = tl.zeros([BLOCK], tl.float32)
    for start in range(0, PER, BLOCK):
        at = base + start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + at, mask=at < n, other=0.0)
        total += x * x
    tl.store(part_ptr + tl.program_id(0), tl.sum(total, 0))


@triton.jit
def total_kernel(part_ptr, norm_ptr, parts, BLOCK: tl.constexpr):
    total = tl.zeros([BLOCK], tl.float32)
    for start in range(0, parts, BLOCK):
        at = start + tl.arange(0, BLOCK)
        total += tl.load(part_ptr + at, mask=at < parts, other=0.0)
    tl.store(norm_ptr, tl.sqrt(tl.sum(total, 0)))


@triton.jit
def divide_kernel(x_ptr, norm_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n)
    tl.store(out_ptr + at, x / tl.load(norm_ptr), mask=at < n)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        out = torch.empty_like(x)
        n = x.numel()
        parts = triton.cdiv(n, 65536)
        part = torch.empty(parts, device=x.device, dtype=torch.float32)
        norm = torch.empty(1, device=x.device, dtype=torch.float32)
        squares_kernel[(parts,)](x, part, n, PER=65536, BLOCK=2048)
        total_kernel[(1,)](part, norm, parts, BLOCK=1024)
        divide_kernel[(triton.cdiv(n, 2048),)](x, norm, out, n, BLOCK=2048)
        return out
"""


def reduction(
    neutral: str, body: str, result: str, dtype: str = "x.dtype", finish: str = "out.squeeze(self.dim)"
) -> str:
    """Reduce along ``dim``."""
    text = REDUCE.replace("NEUTRAL", neutral).replace("BODY", body.replace("\n", "\n        "))
    return text.replace("RESULT", result).replace("DTYPE", dtype).replace("FINISH", finish)


def planes(constructor: str, name: str, make: str, groups: str, inner: str) -> str:
    """Normalise over planes of an input."""
    text = PLANES.replace("CONSTRUCTOR", constructor).replace("NAME", name).replace("MAKE", make)
    return text.replace("GROUPS", groups).replace("INNER", inner)


LARGER = "place = tl.where(x > best, step, place)\nbest = tl.maximum(best, x)"
SMALLER = "place = tl.where(x < best, step, place)\nbest = tl.minimum(best, x)"
LOW, HIGH = '-float("inf")', 'float("inf")'

ANSWERS = {
    "level1/34": planes(
        "num_features", "inorm", "nn.InstanceNorm2d(num_features=num_features)", "x.shape[1]", "size"
    ),
    "level1/35": planes(
        "num_features, num_groups", "gn", "nn.GroupNorm(num_groups=num_groups, num_channels=num_features)",
        "norm.num_groups", "x.shape[2] * x.shape[3]",
    ),
    "level1/36": RMS,
    "level1/37": FROBENIUS,
    "level1/40": planes("normalized_shape", "ln", "nn.LayerNorm(normalized_shape=normalized_shape)", "1", "1"),
    "level1/47": reduction("0.0", "best += x", "best", finish="out"),
    "level1/48": reduction("0.0", "best += x", "best / length"),
    "level1/49": reduction(LOW, "best = tl.maximum(best, x)", "best"),
    "level1/51": reduction(LOW, LARGER, "place", "torch.int64"),
    "level1/52": reduction(HIGH, SMALLER, "place", "torch.int64"),
    "level1/53": reduction(HIGH, "best = tl.minimum(best, x)", "best"),
}  # fmt: skip
