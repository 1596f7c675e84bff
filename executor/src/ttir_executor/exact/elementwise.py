"""Operations on each element alone."""

from collections.abc import Callable
from typing import Any

import numpy as np

from ttir_executor.exact.bits import bits_of, floats_of
from ttir_executor.exact.frames import Frame, Handler
from ttir_executor.exact.functions import FUNCTIONS, external
from ttir_executor.exact.integers import INTEGER, compare_integers, extended_unsigned, truncated
from ttir_executor.exact.memory import Undecided
from ttir_executor.exact.shapes import DTYPES, Array, chosen
from ttir_executor.exact.values import Exact
from ttir_executor.ttir.ir import Op, Type, elem_bytes

_MATH = {
    "exp": "exp", "exp2": "exp2", "log": "log", "log2": "log2", "sin": "sin", "cos": "cos", "tan": "tan",
    "tanh": "tanh", "erf": "erf", "sqrt": "sqrt", "rsqrt": "rsqrt", "floor": "floor", "ceil": "ceil", "absf": "fabs",
    "trunc": "trunc", "round": "round", "roundeven": "rint", "powf": "pow", "atan2": "atan2", "log1p": "log1p",
    "expm1": "expm1", "cbrt": "cbrt", "atan": "atan", "log10": "log10", "fma": "fma",
}  # fmt: skip
_FLOAT: dict[str, Callable[..., Exact]] = {
    "arith.addf": lambda x, y: x + y,
    "arith.subf": lambda x, y: x - y,
    "arith.mulf": lambda x, y: x * y,
    "arith.divf": lambda x, y: x / y,
    "tt.precise_divf": lambda x, y: x / y,
    "tt.precise_sqrt": Exact.sqrt,
    "arith.negf": lambda x: -x,
    "arith.maximumf": Exact.maximum,
    "arith.minimumf": Exact.minimum,
    "arith.maxnumf": FUNCTIONS["fmax"],
    "arith.minnumf": FUNCTIONS["fmin"],
    "arith.remf": FUNCTIONS["fmod"],
    **{f"math.{name}": FUNCTIONS[function] for name, function in _MATH.items()},
    **dict.fromkeys(("arith.extf", "arith.truncf", "tt.fp_to_fp"), lambda x: x),
}
_ORDERED: dict[str, Callable[[Any, Any], Any]] = {
    "oeq": np.equal, "ogt": np.greater, "oge": np.greater_equal, "olt": np.less, "ole": np.less_equal,
    "une": np.not_equal,
}  # fmt: skip
_UNORDERED = {"ueq": "oeq", "ugt": "ogt", "uge": "oge", "ult": "olt", "ule": "ole"}


def compare(predicate: str, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Compare floats as ``arith.cmpf`` does."""
    direct = _ORDERED.get(predicate)
    if direct is not None:
        return np.asarray(direct(x, y))
    neither = np.isnan(x) | np.isnan(y)
    if predicate == "ord":
        return ~neither
    if predicate == "uno":
        return neither
    if predicate == "one":
        return (x != y) & ~neither
    return np.asarray(_ORDERED[_UNORDERED[predicate]](x, y)) | neither


def _float(frame: Frame, op: Op) -> None:
    frame.env[op.results[0]] = _FLOAT[op.name](*[frame.get(value) for value in op.operands])


def _integer(frame: Frame, op: Op) -> None:
    frame.env[op.results[0]] = INTEGER[op.name](*[frame.get(value) for value in op.operands])


def _cmpf(frame: Frame, op: Op) -> None:
    x, y = (frame.exact(value).f for value in op.operands)
    frame.env[op.results[0]] = compare(op.attrs["word0"], x, y)


def _cmpi(frame: Frame, op: Op) -> None:
    x, y = (frame.array(value) for value in op.operands)
    frame.env[op.results[0]] = compare_integers(op.attrs["word0"], x, y)


def _select(frame: Frame, op: Op) -> None:
    condition = frame.array(op.operands[0])
    if op.operands[0].type.shape is None and op.results[0].type.shape is not None and np.ndim(condition):
        condition = condition.reshape((-1,) + (1,) * len(op.results[0].type.shape))
    frame.env[op.results[0]] = chosen(condition, frame.get(op.operands[1]), frame.get(op.operands[2]))


def _addptr(frame: Frame, op: Op) -> None:
    pointer, offset = (frame.array(value) for value in op.operands)
    size = elem_bytes(op.operands[0].type.pointee or "i8")
    frame.env[op.results[0]] = pointer + np.asarray(offset, np.int64) * size


def _clampf(frame: Frame, op: Op) -> None:
    x, low, high = (frame.exact(value) for value in op.operands)
    if "all" in op.attrs.get("propagateNan", ""):
        frame.env[op.results[0]] = x.maximum(low).minimum(high)
    else:
        frame.env[op.results[0]] = FUNCTIONS["fmin"](FUNCTIONS["fmax"](x, low), high)


def _extern(frame: Frame, op: Op) -> None:
    symbol = op.attrs.get("symbol", "").strip('"')
    types = [value.type for value in op.operands]
    found = external(symbol, [frame.get(value) for value in op.operands], types, op.results[0].type)
    if found is None:
        raise Undecided(f"the external function {symbol!r} ({op.loc})")
    frame.env[op.results[0]] = found


# ---- constants


def _constant(frame: Frame, op: Op) -> None:
    """Numbers of the text; dense ones element by element."""
    type_, text = op.results[0].type, op.attrs["value"]
    if not text.startswith("["):
        frame.env[op.results[0]] = _number(frame, text, type_)
        return
    words = text.replace("[", "").replace("]", "").split(",")
    if len(words) == 1:
        frame.env[op.results[0]] = _number(frame, words[0].strip(), type_)
        return
    numbers = [_number(frame, word.strip(), type_) for word in words]
    shape = (1, *(type_.shape or ()))
    if type_.is_float:
        columns = zip(*(one.parts for one in numbers if isinstance(one, Exact)), strict=True)
        parts = [np.array(column).reshape(shape) for column in columns]
        frame.env[op.results[0]] = Exact(frame.run.field, parts[0], parts[1], parts[2], parts[3])
    else:
        frame.env[op.results[0]] = np.array(numbers, DTYPES[type_.elem]).reshape(shape)


def _number(frame: Frame, text: str, type_: Type) -> Array:
    if type_.is_float:
        if text.startswith("0x"):
            bits = np.asarray(int(text, 16), np.uint64).astype(np.int64)
            return Exact.constant(frame.run.field, float(floats_of(bits, type_.elem)), type_.bits)
        return Exact.constant(frame.run.field, float(text), type_.bits)
    if text in ("true", "false"):
        return np.asarray(text == "true").astype(DTYPES[type_.elem])
    return np.asarray(int(text, 0), np.int64).astype(DTYPES[type_.elem])


def _poison(frame: Frame, op: Op) -> None:
    type_ = op.results[0].type
    frame.env[op.results[0]] = (
        Exact.unknown(frame.run.field, np.float64(0)) if type_.is_float else np.zeros((), DTYPES[type_.elem])  # type: ignore[arg-type]
    )


# ---- conversions


def _to_float(frame: Frame, op: Op) -> None:
    x = frame.array(op.operands[0])
    if op.name == "arith.uitofp":
        x = extended_unsigned(x)
    elif x.dtype == np.bool_:
        x = -x.astype(np.int64)
    frame.env[op.results[0]] = Exact.whole(frame.run.field, x)


def _to_integer(frame: Frame, op: Op) -> None:
    type_ = op.results[0].type
    found = truncated(np.trunc(frame.exact(op.operands[0]).f), type_.bits, signed=op.name == "arith.fptosi")
    frame.env[op.results[0]] = found.astype(DTYPES[type_.elem])


def _resize(frame: Frame, op: Op) -> None:
    x, target = frame.array(op.operands[0]), op.results[0].type
    if target.elem == "i1":
        frame.env[op.results[0]] = (x & 1) != 0
        return
    if op.name == "arith.extui":
        x = extended_unsigned(x)
    elif x.dtype == np.bool_:
        x = -x.astype(np.int8)
    frame.env[op.results[0]] = x.astype(DTYPES[target.elem])


def _bitcast(frame: Frame, op: Op) -> None:
    source, target = op.operands[0].type, op.results[0].type
    x = frame.get(op.operands[0])
    if isinstance(x, Exact):
        if not target.is_float:
            x = bits_of(x.f, source.elem).astype(DTYPES[target.elem])
        elif source.elem != target.elem:
            x = Exact.unknown(frame.run.field, floats_of(bits_of(x.f, source.elem), target.elem))
    elif target.is_float:
        x = Exact.unknown(frame.run.field, floats_of(x, target.elem))
    elif target.elem == "i1":
        x = (x & 1) != 0
    else:
        x = x.astype(DTYPES[target.elem])
    frame.env[op.results[0]] = x


HANDLERS: dict[str, Handler] = {
    **dict.fromkeys(_FLOAT, _float),
    **dict.fromkeys(INTEGER, _integer),
    **dict.fromkeys(("arith.extsi", "arith.extui", "arith.trunci", "arith.index_cast"), _resize),
    **dict.fromkeys(("tt.bitcast", "arith.bitcast", "tt.int_to_ptr", "tt.ptr_to_int"), _bitcast),
    **dict.fromkeys(("arith.sitofp", "arith.uitofp"), _to_float),
    **dict.fromkeys(("arith.fptosi", "arith.fptoui"), _to_integer),
    "arith.cmpf": _cmpf, "arith.cmpi": _cmpi, "arith.select": _select, "tt.addptr": _addptr, "tt.clampf": _clampf,
    "tt.extern_elementwise": _extern, "arith.constant": _constant, "ub.poison": _poison,
}  # fmt: skip
