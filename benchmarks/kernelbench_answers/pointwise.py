"""Elementwise operators."""

from __future__ import annotations

KERNEL = """
@triton.jit
def pointwise_kernel(x_ptr, out_ptr, n, {parameters}BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n)
    tl.store(out_ptr + at, {expression}, mask=at < n)


class ModelNew(nn.Module):
    def __init__(self{constructor}):
        super().__init__()
        {keep}

    def forward(self, x{arguments}):
        x = x.contiguous()
        out = torch.empty_like(x)
        n = x.numel()
        pointwise_kernel[(triton.cdiv(n, 2048),)](x, out, n, {given}BLOCK=2048, num_warps=8)
        return out
"""


def pointwise(
    expression: str,
    parameters: str = "",
    constructor: str = "",
    keep: str = "pass",
    arguments: str = "",
    given: str = "",
) -> str:
    """One operator of ``x``."""
    return KERNEL.format(
        expression=expression, parameters=parameters, constructor=constructor, keep=keep, arguments=arguments,
        given=given,
    )  # fmt: skip


SIGMOID = "(1.0 / (1.0 + tl.exp(-x)))"
ALPHA, SCALE = 1.6732632423543772, 1.0507009873554805
CUBE = "0.7978845608028654 * (x + 0.044715 * x * x * x)"

ANSWERS = {
    "level1/5": pointwise("x * factor", "factor, ", arguments=", s", given="s, "),
    "level1/19": pointwise("tl.maximum(x, 0.0)"),
    "level1/20": pointwise(
        "tl.where(x > 0, x, x * slope)", "slope, ", ", negative_slope=0.01", "self.slope = negative_slope",
        given="self.slope, ",
    ),
    "level1/21": pointwise(SIGMOID),
    "level1/22": pointwise("libdevice.tanh(x)"),
    "level1/25": pointwise(f"x * {SIGMOID}"),
    "level1/26": pointwise("0.5 * x * (1.0 + tl.erf(x * 0.7071067811865476))"),
    "level1/27": pointwise(f"{SCALE} * tl.where(x > 0, x, {ALPHA} * libdevice.expm1(x))"),
    "level1/28": pointwise("tl.minimum(tl.maximum(x / 6.0 + 0.5, 0.0), 1.0)"),
    "level1/29": pointwise("tl.where(x > 20.0, x, libdevice.log1p(tl.exp(tl.minimum(x, 20.0))))"),
    "level1/30": pointwise("x / (1.0 + tl.abs(x))"),
    "level1/31": pointwise(
        "tl.where(x > 0, x, alpha * libdevice.expm1(x))", "alpha, ", ", alpha=1.0", "self.alpha = alpha",
        given="self.alpha, ",
    ),
    "level1/32": pointwise("tl.minimum(tl.maximum(x, -1.0), 1.0)"),
    "level1/88": pointwise(f"0.5 * x * (1.0 + libdevice.tanh({CUBE}))"),
}  # fmt: skip
