"""Blocks of one element, and how they become scalars, conditions and returns."""

from collections.abc import Iterator

import torch
import triton
import triton.language as tl

from conformance_cases import Check, case, randn


@triton.jit
def one_element_kernel(x, out):
    """A condition, an item and the halves of a pair: all by way of a block of one element."""
    block = tl.load(x + tl.arange(0, 1))
    if block > 0:
        tl.store(out, 1.0)
    tl.store(out + 1, (block + 0.5).item())
    left, right = tl.split(tl.load(x + tl.arange(0, 2)))
    tl.store(out + 2, left - right)
    tl.store(out + 3, tl.reshape(block * 2, ()))


@case(interpreter=False)
def blocks_of_one_element(device: str) -> Iterator[Check]:
    for seed in range(4):
        x, out = randn(2, seed=seed), torch.zeros(4, device=device)
        one_element_kernel[(1,)](x.to(device), out)
        want = torch.stack([(x[0] > 0).float(), x[0] + 0.5, x[0] - x[1], x[0] * 2])
        yield Check("values", out.cpu(), want)


@triton.jit
def _sign(value):
    if value > 0:
        return 1
    return 0


@triton.jit
def returned_constants_kernel(x, out):
    """Both returns lead to one basic block with different values."""
    pid = tl.program_id(0)
    tl.store(out + pid, _sign(tl.load(x + pid)))


@case()
def returns_of_constants(device: str) -> Iterator[Check]:
    x, out = randn(16), torch.zeros(16, dtype=torch.int32, device=device)
    returned_constants_kernel[(16,)](x.to(device), out)
    yield Check("signs", out.cpu(), (x > 0).int())


@triton.jit
def shared_return_kernel(x, out, flags, BLOCK: tl.constexpr):
    """Both ends store the same block: Triton merges them into one, printed before what branches to it."""
    pid, k = tl.program_id(0), tl.arange(0, BLOCK)
    kept = tl.exp(tl.load(x + k))
    tl.store(out + pid * BLOCK + k, kept)
    flag = tl.load(flags + pid)
    if flag == 0:
        tl.store(out + pid * BLOCK + k, kept * kept)
        return
    if flag == 1:
        return
    other = tl.cumsum(tl.sin(kept), 0)
    more = tl.cumsum(tl.cos(other), 0)
    if tl.sum(other + more, 0) > -1000.0:
        tl.store(out + pid * BLOCK + k, kept * kept)
        return
    tl.store(out + pid * BLOCK + k, other)


@case(interpreter=False)
def returns_that_share_code(device: str) -> Iterator[Check]:
    x, out = randn(64), torch.zeros(3, 64, device=device)
    shared_return_kernel[(3,)](x.to(device), out, torch.tensor([0, 1, 2], device=device), BLOCK=64)
    kept = x.double().exp()
    yield Check("rows", out.cpu(), torch.stack([kept * kept, kept, kept * kept]), rtol=1e-5)
