"""Linear layers of level 2 with everything after them in the same kernel."""

from __future__ import annotations

LINEAR = """
@triton.jit
def linear_kernel(
    x_ptr, w_ptr, bias_ptr, more_ptr, out_ptr, m, n, k, first, second, third, BIAS: tl.constexpr,
    GROUP: tl.constexpr, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr,
):
    program = tl.program_id(0)
    tiles_m, tiles_n = tl.cdiv(m, M), tl.cdiv(n, N)
    group = program // (GROUP * tiles_n)
    height = min(tiles_m - group * GROUP, GROUP)
    row = (group * GROUP + program % (GROUP * tiles_n) % height) * M + tl.arange(0, M)
    column = program % (GROUP * tiles_n) // height * N + tl.arange(0, N)
    total = tl.zeros([M, N], tl.float32)
    for start in range(0, k, K):
        inner = start + tl.arange(0, K)
        x = tl.load(
            x_ptr + row[:, None].to(tl.int64) * k + inner[None, :],
            mask=(row[:, None] < m) & (inner[None, :] < k), other=0.0,
        )
        w = tl.load(
            w_ptr + column[None, :].to(tl.int64) * k + inner[:, None],
            mask=(column[None, :] < n) & (inner[:, None] < k), other=0.0,
        )
        total = tl.dot(x, w, total, input_precision="ieee")
    y = total
    if BIAS:
        y += tl.load(bias_ptr + column, mask=column < n, other=0.0)[None, :]
    EPILOGUE
    tl.store(
        out_ptr + row[:, None].to(tl.int64) * n + column[None, :], y, mask=(row[:, None] < m) & (column[None, :] < n)
    )


def linear(x, w, bias, more, first=0.0, second=0.0, third=0.0):
    x = x.contiguous()
    m, k, n = x.shape[0], x.shape[1], w.shape[0]
    out = torch.empty(m, n, device=x.device, dtype=x.dtype)
    grid = (triton.cdiv(m, 64) * triton.cdiv(n, 64),)
    linear_kernel[grid](
        x, w, bias if bias is not None else w, more if more is not None else w, out, m, n, k, first, second, third,
        BIAS=bias is not None, GROUP=8, M=64, N=64, K=32,
    )
    return out


class ModelNew(nn.Module):
    def __init__(self, CONSTRUCTOR):
        super().__init__()
        KEEP

    def forward(self, x):
        return linear(x, GIVEN)
"""


def fused(constructor: str, keep: str, given: str, epilogue: str) -> str:
    """``epilogue``: statements on ``y``, the layer's output, with ``first`` to ``third`` and ``more`` at hand."""
    text = LINEAR.replace("CONSTRUCTOR", constructor).replace("KEEP", keep.replace("\n", "\n        "))
    return text.replace("GIVEN", given).replace("EPILOGUE", epilogue.replace("\n", "\n    "))


SIGMOID = "(1.0 / (1.0 + tl.exp(-y)))"
GELU = "y = 0.5 * y * (1.0 + tl.erf(y * 0.7071067811865476))"
MISH = "soft = tl.where(y > 20.0, y, libdevice.log1p(tl.exp(tl.minimum(y, 20.0))))\ny = y * libdevice.tanh(soft)"
MORE = "tl.load(more_ptr + column, mask=column < n, other=0.0)[None, :]"


def layer(name: str, into: str = "in_features", out: str = "out_features") -> str:
    """The layer, under the reference's name."""
    return f"self.{name} = nn.Linear({into}, {out})"


ANSWERS = {
    "level2/9": fused(
        "in_features, out_features, subtract_value, multiply_value",
        layer("linear") + "\nself.values = subtract_value, multiply_value",
        "self.linear.weight, self.linear.bias, None, *self.values", "y = tl.maximum((y - first) * second, 0.0)",
    ),
    "level2/12": fused(
        "in_features, out_features, multiplier, negative_slope",
        layer("gemm") + "\nself.values = multiplier, negative_slope",
        "self.gemm.weight, self.gemm.bias, None, *self.values", "y = y * first\ny = tl.where(y > 0, y, y * second)",
    ),
    "level2/29": fused(
        "in_features, out_features", layer("linear"), "self.linear.weight, self.linear.bias, None", f"{MISH}\n{MISH}",
    ),
    "level2/40": fused(
        "in_features, out_features, scaling_factor", layer("matmul") + "\nself.factor = scaling_factor",
        "self.matmul.weight, self.matmul.bias, None, self.factor", "y = y * first + y",
    ),
    "level2/53": fused(
        "in_features, out_features, scaling_factor, hardtanh_min, hardtanh_max",
        layer("gemm") + "\nself.values = scaling_factor, hardtanh_min, hardtanh_max",
        "self.gemm.weight, self.gemm.bias, None, *self.values",
        "y = tl.minimum(tl.maximum(y * first, second), third)\n" + GELU,
    ),
    "level2/59": fused(
        "in_features, out_features, scaling_factor", layer("matmul") + "\nself.factor = scaling_factor",
        "self.matmul.weight, self.matmul.bias, None, self.factor", f"y = y * {SIGMOID} * first",
    ),
    "level2/63": fused(
        "in_features, out_features, divisor", layer("linear") + "\nself.divisor = divisor",
        "self.linear.weight, self.linear.bias, None, self.divisor", "y = tl.maximum(y, 0.0) / first",
    ),
    "level2/68": fused(
        "in_features, out_features, constant",
        layer("linear") + "\nself.constant = nn.Parameter(torch.tensor(constant))",
        "self.linear.weight, self.linear.bias, self.constant",
        "constant = tl.load(more_ptr)\ny = tl.minimum(y, constant) - constant",
    ),
    "level2/70": fused(
        "input_size, hidden_size, scaling_factor",
        layer("gemm", "input_size", "hidden_size") + "\nself.factor = scaling_factor",
        "self.gemm.weight, self.gemm.bias, None, self.factor", f"y = {SIGMOID} * first + y",
    ),
    "level2/76": fused(
        "in_features, out_features, bias_shape",
        "self.gemm = nn.Linear(in_features, out_features, bias=False)\n"
        "self.bias = nn.Parameter(torch.randn(bias_shape))",
        "self.gemm.weight, None, self.bias", f"y = tl.maximum(y + {MORE}, 0.0)",
    ),
    "level2/81": fused(
        "in_features, out_features, bias=True", "self.gemm = nn.Linear(in_features, out_features, bias=bias)",
        "self.gemm.weight, self.gemm.bias, None",
        f"y = y * {SIGMOID} / 2.0\ny = tl.minimum(tl.maximum(y, -1.0), 1.0)\ny = libdevice.tanh(y)",
    ),
    "level2/86": fused(
        "input_size, output_size, divisor",
        layer("linear", "input_size", "output_size") + "\nself.divisor = divisor",
        "self.linear.weight, self.linear.bias, None, self.divisor", "y = y / first\n" + GELU,
    ),
    "level2/95": fused(
        "in_features, out_features, add_value_shape",
        layer("matmul") + "\nself.add_value = nn.Parameter(torch.randn(add_value_shape))",
        "self.matmul.weight, self.matmul.bias, self.add_value",
        f"y = y + {MORE}\ny = y * {SIGMOID}\ny = libdevice.tanh(y)\n{GELU}\ny = tl.minimum(tl.maximum(y, -1.0), 1.0)",
    ),
}  # fmt: skip
