"""Long rows, one program each: softmax, norms, scans."""

from __future__ import annotations

MODULE = """

class ModelNew(nn.Module):
    def __init__(self, *arguments):
        super().__init__()

    def forward(self, x{arguments}):
        x = x.contiguous()
        out = torch.empty_like(x)
        rows, columns = x.shape
        row_kernel[(rows,)](x, {given}out, columns, BLOCK=BLOCK, num_warps=8)
        return out
"""

SOFTMAX = """
BLOCK = 4096


@triton.jit
def row_kernel(x_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    base = tl.program_id(0).to(tl.int64) * columns
    most = -float("inf")
    total = 0.0
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + base + at, mask=at < columns, other=-float("inf"))
        larger = tl.maximum(most, tl.max(x, 0))
        total = total * tl.exp(most - larger) + tl.sum(tl.exp(x - larger), 0)
        most = larger
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + base + at, mask=at < columns, other=0.0)
        tl.store(out_ptr + base + at, RESULT, mask=at < columns)
"""

NORM = """
BLOCK = 4096


@triton.jit
def row_kernel(x_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    base = tl.program_id(0).to(tl.int64) * columns
    sums = tl.zeros([BLOCK], tl.float32)
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + base + at, mask=at < columns, other=0.0)
        sums += TERM
    norm = RESULT
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + base + at, mask=at < columns, other=0.0)
        tl.store(out_ptr + base + at, x / norm, mask=at < columns)
"""

SCAN = """
BLOCK = 2048


@triton.jit
def combine(a, b):
    return a OPERATOR b


@triton.jit
def row_kernel(x_ptr, MASKout_ptr, columns, BLOCK: tl.constexpr):
    base = tl.program_id(0).to(tl.int64) * columns
    carried = NEUTRAL
    for start in range(0, columns, BLOCK):
        step = start + tl.arange(0, BLOCK)
        at = PLACE
        x = tl.load(x_ptr + base + at, mask=step < columns, other=NEUTRAL)
        scanned = carried OPERATOR tl.associative_scan(x, 0, combine)
        carried = carried OPERATOR tl.reduce(x, 0, combine)
        tl.store(out_ptr + base + at, scanned, mask=step < columns)
"""

EXCLUSIVE = """
BLOCK = 2048


@triton.jit
def combine(a, b):
    return a + b


@triton.jit
def row_kernel(x_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    base = tl.program_id(0).to(tl.int64) * columns
    carried = 0.0
    tl.store(out_ptr + base, 0.0)
    for start in range(0, columns - 1, BLOCK):
        at = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + base + at, mask=at < columns - 1, other=0.0)
        tl.store(out_ptr + base + at + 1, carried + tl.associative_scan(x, 0, combine), mask=at < columns - 1)
        carried += tl.sum(x, 0)
"""


def row(kernel: str, arguments: str = "", given: str = "") -> str:
    """A kernel with its module."""
    return kernel + MODULE.format(arguments=arguments, given=given)


def softmax(result: str) -> str:
    """``result`` from ``x``, ``most`` and ``total``."""
    return row(SOFTMAX.replace("RESULT", result))


def norm(term: str, result: str) -> str:
    """x over ``result`` of the sums of ``term``."""
    return row(NORM.replace("TERM", term).replace("RESULT", result))


def scan(operator: str, neutral: str, place: str = "step", masked: bool = False) -> str:
    """Cumulative sums or products."""
    kernel = SCAN.replace("OPERATOR", operator).replace("NEUTRAL", neutral).replace("PLACE", place)
    kernel = kernel.replace("MASK", "mask_ptr, " if masked else "")
    if masked:
        load = f"tl.load(x_ptr + base + at, mask=step < columns, other={neutral})"
        kept = "tl.load(mask_ptr + base + at, mask=step < columns, other=0).to(tl.float32)"
        kernel = kernel.replace(load, f"{load} * {kept}")
    return row(kernel, ", mask" if masked else "", "mask.contiguous(), " if masked else "")


ANSWERS = {
    "level1/23": softmax("tl.exp(x - most) / total"),
    "level1/24": softmax("x - most - tl.log(total)"),
    "level1/38": norm("tl.abs(x)", "tl.sum(sums, 0) / columns"),
    "level1/39": norm("x * x", "tl.sqrt(tl.sum(sums, 0))"),
    "level1/89": scan("+", "0.0"),
    "level1/90": scan("*", "1.0"),
    "level1/91": scan("+", "0.0", "columns - 1 - step"),
    "level1/92": row(EXCLUSIVE),
    "level1/93": scan("+", "0.0", masked=True),
}
