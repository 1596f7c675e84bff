"""The element-wise operators, and what one element of each costs in instructions."""

from __future__ import annotations


def words(text: str) -> list[str]:
    """Names separated by white space."""
    return text.split()


# Instructions per element beyond the loads and stores, and special-function results per element.
HEAVY: dict[str, tuple[float, float]] = {
    "exp": (4, 1), "exp2": (2, 1), "expm1": (14, 1), "log": (10, 1), "log1p": (14, 1), "log2": (6, 1), "log10": (8, 1),
    "sigmoid": (10, 2), "log_sigmoid_forward": (20, 2), "tanh": (18, 2), "gelu": (24, 1), "silu": (11, 2),
    "mish": (36, 4), "softplus": (24, 2), "elu": (16, 1), "celu": (16, 1), "erf": (22, 1), "erfc": (30, 1),
    "sin": (22, 0), "cos": (22, 0), "tan": (30, 1), "asin": (20, 1), "acos": (20, 1), "atan": (20, 1),
    "atan2": (30, 1), "asinh": (30, 2), "acosh": (30, 2), "atanh": (24, 2), "sinh": (18, 1), "cosh": (18, 1),
    "pow": (30, 2), "float_power": (30, 2), "sqrt": (6, 1), "rsqrt": (3, 1), "reciprocal": (6, 1), "div": (9, 1),
    "floor_divide": (14, 1), "xlogy": (14, 1), "special_xlog1py": (18, 1), "special_entr": (14, 1), "lgamma": (60, 2),
    "digamma": (125, 4), "erfinv": (40, 2), "fmod": (20, 1), "remainder": (24, 1), "logaddexp": (26, 2),
    "logaddexp2": (22, 2), "gelu_backward": (40, 2), "silu_backward": (20, 2), "mish_backward": (44, 4),
    "sigmoid_backward": (4, 0), "tanh_backward": (4, 0), "logit": (14, 1), "logit_backward": (12, 1),
    "hypot": (12, 1), "sinc": (28, 1), "i0": (70, 4), "special_i0e": (40, 2), "special_i1": (44, 2),
    "special_i1e": (44, 2), "special_erfcx": (50, 2), "special_ndtri": (50, 2), "special_log_ndtr": (50, 2),
    "elu_backward": (12, 1), "softplus_backward": (14, 1), "log_sigmoid_backward": (14, 1), "glu": (12, 2),
    "glu_backward": (16, 2), "glu_jvp": (16, 2), "glu_backward_jvp": (24, 2), "hardswish": (6, 0),
    "addcdiv": (10, 1), "polar": (44, 0), "angle": (30, 1), "nextafter": (8, 0), "frexp": (8, 0), "ldexp": (8, 1),
    "gcd": (400, 0), "lcm": (420, 0), "bitwise_left_shift": (3, 0), "rrelu_with_noise": (30, 0),
    "binary_cross_entropy_backward": (16, 1), "soft_margin_loss_backward": (16, 2), "_thnn_fused_lstm_cell": (70, 10),
}  # fmt: skip

LIGHT = frozenset(
    words(
        """
        __ilshift__ __irshift__ __lshift__ __rshift__ __and__ __or__ __xor__ __iand__ __ior__ __ixor__ abs add
        addcmul bitwise_and bitwise_not bitwise_or bitwise_right_shift bitwise_xor ceil clamp clamp_max
        clamp_min clone _to_copy copy conj_physical _conj_physical copysign deg2rad eq floor fmax fmin frac ge
        gt hardshrink hardsigmoid hardtanh heaviside isinf isnan isneginf isposinf isfinite le leaky_relu lerp
        logical_and logical_not logical_or logical_xor lt masked_fill max maximum min minimum mul nan_to_num ne
        neg rad2deg relu round rsub sgn sign signbit softshrink sub threshold threshold_backward trunc where
        _prelu_kernel _prelu_kernel_backward relu6 hardtanh_backward hardshrink_backward hardsigmoid_backward
        hardswish_backward leaky_relu_backward softshrink_backward rrelu_with_noise_backward native_dropout_backward
        mse_loss_backward smooth_l1_loss_backward huber_loss_backward addr complex linalg_cross tril triu
        special_round alias_copy as_strided_copy detach_copy expand_copy permute_copy select_copy slice_copy
        squeeze_copy t_copy transpose_copy unfold_copy unsqueeze_copy view_copy view_as_complex_copy
        view_as_real_copy diagonal_copy narrow_copy lift lift_fresh_copy _neg_view_copy contiguous repeat
        channel_shuffle native_channel_shuffle pixel_shuffle pixel_unshuffle
        """
    )
)
"""One or two instructions an element; copies too."""
NAMES = LIGHT | HEAVY.keys()
COMPLEX_MUL = frozenset(("mul", "addcmul", "addcdiv", "div", "reciprocal", "rsub", "pow", "sqrt", "exp", "log"))
INTEGER_DIVISION = frozenset(("div", "floor_divide", "remainder", "fmod"))
DIVISION_INSTRUCTIONS = {"int64": 70.0, "uint64": 70.0}
"""Instructions of an integer division: GPUs have none in hardware; 64 bits take a call."""
SHORT_DIVISION = 22.0
INTEGER_POWER = 40.0


def arithmetic(base: str, elements: float, dtype: str) -> dict[str, float]:
    """Return the operations of an element-wise operator. Half types compute in fp32; float64 special functions in
    software.

    A complex element is two real ones, and a complex product four products and two sums.
    """
    instructions, special = HEAVY.get(base, (2.0, 0.0))
    if dtype.startswith("complex"):
        factor = 4.0 if base in COMPLEX_MUL or special else 2.0
        unit = "fp64" if dtype == "complex128" else "fp32"
        return {unit: elements * factor * (instructions + 4 * special)}
    if dtype == "float64":
        return {"fp64": elements * (instructions + 12 * special)}
    if not dtype.startswith(("float", "bfloat")):
        return {"int": elements * _integer_instructions(base, dtype)}
    flops = {"fp32": elements * instructions}
    if special:
        flops["sfu"] = elements * special
    return flops


def _integer_instructions(base: str, dtype: str) -> float:
    if base in INTEGER_DIVISION:
        return DIVISION_INSTRUCTIONS.get(dtype, SHORT_DIVISION)
    if base in ("gcd", "lcm"):
        return HEAVY[base][0]
    return INTEGER_POWER if base == "pow" else 2.0
