"""Reductions, arg-reductions, scans with custom combiners, and operations that rearrange a block."""

from collections.abc import Iterator

import torch
import triton
import triton.language as tl

from conformance_cases import Check, case, randint, randn


@triton.jit
def reduce_kernel(x, out, R: tl.constexpr, C: tl.constexpr, AXIS: tl.constexpr, HOW: tl.constexpr):
    r, c = tl.arange(0, R), tl.arange(0, C)
    block = tl.load(x + r[:, None] * C + c[None, :])
    if HOW == "sum":
        value = tl.sum(block, AXIS)
    elif HOW == "max":
        value = tl.max(block, AXIS)
    elif HOW == "min":
        value = tl.min(block, AXIS)
    elif HOW == "argmax":
        value = tl.argmax(block, AXIS)
    elif HOW == "argmin":
        value = tl.argmin(block, AXIS)
    else:
        value = tl.xor_sum(block, AXIS)
    tl.store(out + tl.arange(0, C if AXIS == 0 else R), value)


_SHAPES = ((16, 64), (64, 16), (4, 128), (1, 32), (32, 1), (2, 2), (8, 4), (128, 8))


@case()
def reduce_2d(device: str) -> Iterator[Check]:
    yield from _reduced(device, ("sum", "max", "min"))


@case()
def reduce_2d_to_indices(device: str) -> Iterator[Check]:
    yield from _reduced(device, ("argmax", "argmin"))


def _reduced(device: str, hows: tuple[str, ...]) -> Iterator[Check]:
    for rows, cols in _SHAPES:
        x = randn(rows, cols)
        for axis in (0, 1):
            for how in hows:
                integer = how.startswith("arg")
                out = torch.zeros(
                    cols if axis == 0 else rows, dtype=torch.int32 if integer else torch.float32, device=device
                )
                reduce_kernel[(1,)](x.to(device), out, R=rows, C=cols, AXIS=axis, HOW=how)
                reference = {"sum": torch.sum, "max": torch.amax, "min": torch.amin, "argmax": torch.argmax,
                             "argmin": torch.argmin}[how]  # fmt: skip
                want = reference(x.double(), dim=axis)
                yield Check(f"{how} {rows}x{cols} axis {axis}", out.cpu(), want, atol=0 if how != "sum" else 1e-5)


@case()
def reduce_integers(device: str) -> Iterator[Check]:
    for dtype in (torch.int32, torch.int64, torch.int8):
        x = randint(-9, 9, (8, 16), dtype=dtype)
        wide = torch.int64 if dtype is torch.int64 else torch.int32
        for how in ("sum", "max", "xor"):
            out = torch.zeros(8, dtype=wide, device=device)
            reduce_kernel[(1,)](x.to(device), out, R=8, C=16, AXIS=1, HOW=how)
            if how == "xor":
                want = x[:, 0].clone()
                for column in range(1, 16):
                    want ^= x[:, column]
            else:
                want = x.sum(1) if how == "sum" else x.amax(1)
            yield Check(f"{dtype} {how}", out.cpu(), want.to(wide))


@triton.jit
def ties_kernel(x, out, values, C: tl.constexpr):
    block = tl.load(x + tl.arange(0, C))
    best, at = tl.max(block, 0, return_indices=True)
    low, low_at = tl.min(block, 0, return_indices=True)
    tl.store(out, at)
    tl.store(out + 1, low_at)
    tl.store(out + 2, tl.argmax(block, 0))
    tl.store(values, best)
    tl.store(values + 1, low)


@case()
def argument_of_ties(device: str) -> Iterator[Check]:
    """The first of several equal values wins."""
    x = randint(0, 4, (256,)).float()
    out, values = torch.zeros(3, dtype=torch.int32, device=device), torch.zeros(2, device=device)
    ties_kernel[(1,)](x.to(device), out, values, C=256)
    first_max, first_min = int((x == 3).nonzero()[0]), int((x == 0).nonzero()[0])
    yield Check("indices", out.cpu(), torch.tensor([first_max, first_min, first_max], dtype=torch.int32))
    yield Check("values", values.cpu(), torch.tensor([3.0, 0.0]))


@triton.jit
def reduce_3d_kernel(x, out, A: tl.constexpr, B: tl.constexpr, C: tl.constexpr, AXIS: tl.constexpr):
    a, b, c = tl.arange(0, A), tl.arange(0, B), tl.arange(0, C)
    block = tl.load(x + a[:, None, None] * B * C + b[None, :, None] * C + c[None, None, :])
    value = tl.sum(block, AXIS, keep_dims=True)
    whole = tl.broadcast_to(value, (A, B, C))
    tl.store(out + a[:, None, None] * B * C + b[None, :, None] * C + c[None, None, :], block - whole)


@case()
def reduce_3d_keep_dims(device: str) -> Iterator[Check]:
    x = randn(4, 8, 16)
    for axis in (0, 1, 2):
        out = torch.zeros(4, 8, 16, device=device)
        reduce_3d_kernel[(1,)](x.to(device), out, A=4, B=8, C=16, AXIS=axis)
        want = x.double() - x.double().sum(axis, keepdim=True)
        yield Check(f"axis {axis}", out.cpu(), want, atol=1e-5)


@triton.jit
def mul_combine(a, b):
    return a * b


@triton.jit
def welford_combine(mean_a, m2_a, weight_a, mean_b, m2_b, weight_b):
    delta = mean_b - mean_a
    weight = weight_a + weight_b
    share = tl.where(weight == 0.0, 0.0, weight_b / weight)
    return mean_a + delta * share, m2_a + m2_b + delta * delta * weight_a * share, weight


@triton.jit
def custom_reduce_kernel(x, out, N: tl.constexpr):
    value = tl.load(x + tl.arange(0, N))
    tl.store(out, tl.reduce(value, 0, mul_combine))
    mean, m2, weight = tl.reduce((value, tl.zeros_like(value), tl.full((N,), 1.0, tl.float32)), 0, welford_combine)
    tl.store(out + 1, mean)
    tl.store(out + 2, m2 / weight)


@case()
def custom_reductions(device: str) -> Iterator[Check]:
    x = 1 + randn(256) * 0.1
    out = torch.zeros(3, device=device)
    custom_reduce_kernel[(1,)](x.to(device), out, N=256)
    d = x.double()
    yield Check(
        "product, mean, variance", out.cpu(), torch.stack([d.prod(), d.mean(), d.var(unbiased=False)]), rtol=2e-5
    )


@triton.jit
def half_sum_kernel(x, out, N: tl.constexpr):
    value = tl.load(x + tl.arange(0, N))
    tl.store(out, tl.sum(value, 0))
    tl.store(out + 1, tl.max(value, 0))
    tl.store(out + 2, tl.sum(value, 0, dtype=tl.float32))


@case()
def reduce_half(device: str) -> Iterator[Check]:
    """tl.sum of halves adds in float and rounds at the end."""
    x = randn(512, dtype=torch.float16)
    out = torch.zeros(3, device=device)
    half_sum_kernel[(1,)](x.to(device), out, N=512)
    exact = x.double().sum()
    yield Check("sum", out[:1].cpu(), exact[None], atol=0.05)
    yield Check("max", out[1:2].cpu(), x.amax()[None].float())
    yield Check("sum in float", out[2:].cpu(), exact[None], atol=1e-4)


@triton.jit
def scan_kernel(x, out, R: tl.constexpr, C: tl.constexpr, AXIS: tl.constexpr, REVERSE: tl.constexpr, HOW: tl.constexpr):
    at = tl.arange(0, R)[:, None] * C + tl.arange(0, C)[None, :]
    block = tl.load(x + at)
    if HOW == "cumsum":
        value = tl.cumsum(block, AXIS, reverse=REVERSE)
    elif HOW == "cumprod":
        value = tl.cumprod(block, AXIS, reverse=REVERSE)
    else:
        value = tl.associative_scan(block, AXIS, max_combine, reverse=REVERSE)
    tl.store(out + at, value)


@triton.jit
def max_combine(a, b):
    return tl.maximum(a, b)


@case()
def scans(device: str) -> Iterator[Check]:
    for rows, cols in ((8, 32), (32, 8), (1, 64), (16, 16), (2, 128)):
        x = 1 + 0.1 * randn(rows, cols)
        for axis in (0, 1):
            for reverse in (False, True):
                for how in ("cumsum", "cumprod", "cummax"):
                    out = torch.zeros(rows, cols, device=device)
                    scan_kernel[(1,)](x.to(device), out, R=rows, C=cols, AXIS=axis, REVERSE=reverse, HOW=how)
                    turned = x.double().flip(axis) if reverse else x.double()
                    if how == "cummax":
                        want = turned.cummax(axis).values
                    else:
                        want = getattr(turned, how)(axis)
                    want = want.flip(axis) if reverse else want
                    yield Check(f"{how} {rows}x{cols} axis {axis} reverse {reverse}", out.cpu(), want, rtol=1e-5)


@triton.jit
def sort_kernel(x, out, R: tl.constexpr, C: tl.constexpr, DESCENDING: tl.constexpr):
    at = tl.arange(0, R)[:, None] * C + tl.arange(0, C)[None, :]
    tl.store(out + at, tl.sort(tl.load(x + at), descending=DESCENDING))


@case()
def sorting(device: str) -> Iterator[Check]:
    for rows, cols, dtype in ((4, 64, torch.float32), (1, 128, torch.int32), (8, 8, torch.float16), (2, 2, torch.int8)):
        x = (randn(rows, cols) * 50).to(dtype)
        for descending in (False, True):
            out = torch.zeros(rows, cols, dtype=dtype, device=device)
            sort_kernel[(1,)](x.to(device), out, R=rows, C=cols, DESCENDING=descending)
            yield Check(f"{rows}x{cols} {dtype} {descending}", out.cpu(), x.sort(1, descending=descending).values)


@triton.jit
def topk_kernel(x, out, C: tl.constexpr, K: tl.constexpr):
    row = tl.program_id(0)
    best = tl.topk(tl.load(x + row * C + tl.arange(0, C)), K)
    tl.store(out + row * K + tl.arange(0, K), best)


@case()
def top_k(device: str) -> Iterator[Check]:
    x = randn(6, 128)
    for k in (4, 16, 64):
        out = torch.zeros(6, k, device=device)
        topk_kernel[(6,)](x.to(device), out, C=128, K=k)
        yield Check(f"k={k}", out.cpu(), x.topk(k, 1).values)


@triton.jit
def rearrange_kernel(x, y, out, N: tl.constexpr):
    k = tl.arange(0, N)
    a, b = tl.load(x + k), tl.load(y + k)
    joined = tl.join(a, b)
    left, right = tl.split(joined * 2.0)
    tl.store(out + k, left)
    tl.store(out + N + k, right)
    tl.store(out + 2 * N + tl.arange(0, 2 * N), tl.interleave(a, b))
    tl.store(out + 4 * N + k, tl.flip(a, 0))
    tl.store(out + 5 * N + tl.arange(0, 2 * N), tl.cat(a, b, can_reorder=True))
    square = tl.reshape(a, (N // 8, 8))
    tl.store(out + 7 * N + tl.arange(0, 8)[:, None] * (N // 8) + tl.arange(0, N // 8)[None, :], tl.trans(square))
    tl.store(out + 8 * N + k, tl.ravel(tl.trans(square)))


@case()
def join_split_interleave_flip(device: str) -> Iterator[Check]:
    for n in (16, 64, 128):
        x, y = randn(n), randn(n, seed=1)
        out = torch.zeros(9 * n, device=device)
        rearrange_kernel[(1,)](x.to(device), y.to(device), out, N=n)
        got = out.cpu()
        yield Check("split", got[: 2 * n], torch.cat([x, y]) * 2)
        yield Check("interleave", got[2 * n : 4 * n], torch.stack([x, y], 1).flatten())
        yield Check("flip", got[4 * n : 5 * n], x.flip(0))
        yield Check("cat, in any order", got[5 * n : 7 * n].sort().values, torch.cat([x, y]).sort().values)
        turned = x.view(n // 8, 8).t().reshape(-1)
        yield Check("trans", got[7 * n : 8 * n], turned)
        yield Check("ravel", got[8 * n :], turned)


@triton.jit
def permute_kernel(x, out, A: tl.constexpr, B: tl.constexpr, C: tl.constexpr):
    at = tl.arange(0, A)[:, None, None] * B * C + tl.arange(0, B)[None, :, None] * C + tl.arange(0, C)[None, None, :]
    block = tl.permute(tl.load(x + at), (2, 0, 1))
    to = tl.arange(0, C)[:, None, None] * A * B + tl.arange(0, A)[None, :, None] * B + tl.arange(0, B)[None, None, :]
    tl.store(out + to, block)


@case()
def permute_3d(device: str) -> Iterator[Check]:
    for shape in ((4, 8, 16), (16, 2, 4), (2, 32, 2)):
        x = randn(*shape)
        out = torch.zeros(x.numel(), device=device)
        permute_kernel[(1,)](x.to(device), out, A=shape[0], B=shape[1], C=shape[2])
        yield Check(str(shape), out.cpu(), x.permute(2, 0, 1).reshape(-1))


@triton.jit
def gather_kernel(x, index, out, R: tl.constexpr, C: tl.constexpr, M: tl.constexpr, AXIS: tl.constexpr):
    block = tl.load(x + tl.arange(0, R)[:, None] * C + tl.arange(0, C)[None, :])
    if AXIS == 1:
        at = tl.arange(0, R)[:, None] * M + tl.arange(0, M)[None, :]
    else:
        at = tl.arange(0, M)[:, None] * C + tl.arange(0, C)[None, :]
    tl.store(out + at, tl.gather(block, tl.load(index + at), AXIS))


@case()
def gathers(device: str) -> Iterator[Check]:
    x = randn(16, 32)
    for axis, shape, top in ((1, (16, 8), 32), (1, (16, 64), 32), (0, (4, 32), 16), (0, (64, 32), 16)):
        index = randint(0, top, shape)
        out = torch.zeros(shape, device=device)
        m = shape[1] if axis == 1 else shape[0]
        gather_kernel[(1,)](x.to(device), index.to(device), out, R=16, C=32, M=m, AXIS=axis)
        yield Check(f"axis {axis} {shape}", out.cpu(), x.gather(axis, index.long()))


@triton.jit
def histogram_kernel(x, out, n, N: tl.constexpr, BINS: tl.constexpr):
    k = tl.arange(0, N)
    value = tl.load(x + k, mask=k < n, other=0)
    tl.store(out + tl.arange(0, BINS), tl.histogram(value, BINS))
    tl.store(out + BINS + tl.arange(0, BINS), tl.histogram(value, BINS, mask=k < n))


@case()
def histograms(device: str) -> Iterator[Check]:
    for n in (512, 400):
        x = randint(0, 16, (n,))
        out = torch.zeros(32, dtype=torch.int32, device=device)
        histogram_kernel[(1,)](x.to(device), out, n, N=512, BINS=16)
        counts = torch.bincount(x, minlength=16).to(torch.int32)
        padded = counts.clone()
        padded[0] += 512 - n
        yield Check(f"n={n}", out.cpu(), torch.cat([padded, counts]))


@triton.jit
def _larger_or_first(a, i, b, j):
    if a > b:
        value, index = a, i
    else:
        if a == b:
            index = tl.minimum(i, j)
        else:
            index = j
        value = b
    return value, index


@triton.jit
def _branching(a, b):
    if a > b:
        return_value = a - b
    else:
        return_value = a * 2
    return return_value, tl.minimum(a, b)


@triton.jit
def branching_functions_kernel(x, y, best, at, out, R: tl.constexpr, C: tl.constexpr):
    """Branches inside a combine function and inside a function that is mapped over a block."""
    place = tl.arange(0, R)[:, None] * C + tl.arange(0, C)[None, :]
    left, right = tl.load(x + place), tl.load(y + place)
    numbers = tl.broadcast_to(tl.arange(0, C)[None, :], (R, C))
    value, index = tl.reduce((left, numbers), 1, _larger_or_first)
    tl.store(best + tl.arange(0, R), value)
    tl.store(at + tl.arange(0, R), index)
    first, second = tl.map_elementwise(_branching, left, right)
    tl.store(out + place, first)
    tl.store(out + R * C + place, second)


@case(interpreter=False)
def functions_with_branches(device: str) -> Iterator[Check]:
    if not hasattr(tl, "map_elementwise"):
        return
    x, y = randint(0, 5, (16, 32)).float(), randn(16, 32)
    best, at = torch.zeros(16, device=device), torch.zeros(16, dtype=torch.int32, device=device)
    out = torch.zeros(2, 16, 32, device=device)
    branching_functions_kernel[(1,)](x.to(device), y.to(device), best, at, out, R=16, C=32)
    yield Check("largest", best.cpu(), x.amax(1))
    yield Check("first place", at.cpu(), torch.from_numpy(x.numpy().argmax(1)).int())
    yield Check("mapped", out.cpu(), torch.stack([torch.where(x > y, x - y, x * 2), torch.minimum(x, y)]))
