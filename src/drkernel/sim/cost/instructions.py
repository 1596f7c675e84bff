"""Machine instructions per element of each TTIR operation, by unit.

Counts are those of the code that Triton's LLVM and the CUDA device library generate for sm_80 to sm_100, read from
compiled kernels (``benchmarks/library_instructions.py``) and the library's published sources, on the paths that
ordinary arguments take. One number stands for an instruction of one lane. Every unit also takes an issue slot for each
instruction.
"""

import re

from drkernel.sim.cost.layouts import SPREADS, known_number
from ttir_executor.lower.block_cost import float_unit
from ttir_executor.lower.dot import PRODUCTS
from ttir_executor.ttir.ir import Op, Type, Value
from ttir_executor.ttir.ptx import Statement, counts_of, operations

Counts = dict[str, float]
"""instructions by unit: ``fp32``, ``fp64``, ``fp16``, ``bf16``, ``int``, ``imad`` (whole-number products), ``add``
(additions, which either of these two makes), ``sfu``"""

FREE = frozenset(
    {
        "tt.splat", "tt.broadcast", "tt.expand_dims", "tt.reshape", "tt.make_range", "arith.constant", "ub.poison",
        "tt.unsplat", "tt.get_program_id", "tt.get_num_programs", "scf.yield", "scf.condition", "tt.return",
        "tt.reduce.return", "tt.scan.return", "tt.map_elementwise.return", "llvm.intr.assume", "arith.bitcast",
        "tt.bitcast", "tt.int_to_ptr", "tt.ptr_to_int", "ttg.barrier", "gpu.barrier", "tt.debug_barrier", "arith.extui",
    }
)  # fmt: skip
"""what only names or rearranges registers, or is one instruction for a whole program"""

_FUNCTIONS: dict[str, tuple[float, float]] = {
    "exp": (4, 1), "exp2": (4, 1), "exp10": (7, 1), "log": (27, 0), "log2": (18, 0), "log10": (19, 0), "sin": (24, 0),
    "cos": (24, 0), "sincos": (40, 0), "tan": (40, 1), "tanh": (14, 2), "sinh": (22, 2), "cosh": (14, 2),
    "asin": (18, 1), "acos": (24, 1), "asinh": (34, 2), "acosh": (32, 2), "atanh": (32, 1), "atan": (24, 1),
    "atan2": (38, 1), "erf": (24, 1), "erfc": (34, 2), "erfinv": (30, 1), "erfcinv": (42, 2), "erfcx": (40, 2),
    "normcdf": (44, 2), "normcdfinv": (48, 2), "log1p": (24, 0), "expm1": (20, 1), "cbrt": (20, 2), "pow": (80, 2),
    "powi": (26, 2), "hypot": (18, 1), "rhypot": (18, 1), "lgamma": (130, 3), "tgamma": (90, 3), "fmod": (50, 1),
    "rem": (50, 1), "remainder": (60, 1), "j0": (70, 3), "j1": (70, 3), "y0": (120, 5), "y1": (120, 5),
    "cyl_bessel_i0": (60, 2), "cyl_bessel_i1": (60, 2), "sqrt": (5, 1), "rsqrt": (0, 1), "rcbrt": (20, 2),
    "rcp": (2, 1), "div": (7, 1), "sinpi": (20, 0), "cospi": (20, 0), "logb": (8, 0), "ilogb": (8, 0), "round": (4, 0),
    "roundeven": (1, 0), "nearbyint": (1, 0), "rint": (1, 0), "lrint": (2, 0),
    "llrint": (2, 0), "lround": (12, 0), "llround": (12, 0), "floor": (1, 0), "ceil": (1, 0), "trunc": (1, 0),
    "fabs": (1, 0), "abs": (1, 0), "absf": (1, 0), "copysign": (1, 0), "fmax": (1, 0), "fmin": (1, 0), "fma": (1, 0),
    "fdim": (2, 0), "saturate": (1, 0), "isnan": (1, 0), "isinf": (2, 0), "isfinited": (2, 0), "finite": (2, 0),
    "signbit": (1, 0), "ldexp": (8, 0), "scalbn": (8, 0), "fast_exp": (2, 1), "fast_log": (2, 1), "fast_sin": (2, 1),
    "fast_cos": (2, 1), "fast_pow": (4, 2), "fast_div": (2, 1), "fast_tanh": (1, 1), "fast_log2": (2, 1),
    "fast_log10": (2, 1), "fast_exp10": (2, 1), "fast_tan": (5, 3), "add": (1, 0), "sub": (1, 0), "mul": (1, 0),
}  # fmt: skip
"""(arithmetic, special-function) instructions of a function of one fp32 element"""
_WIDE = {
    "muli": 5.0, "mulhiui": 5.0, "shli": 3.0, "shrsi": 3.0, "shrui": 3.0,
    "mul": 5.0, "mad": 7.0, "shl": 3.0, "shr": 3.0, "div": 90.0, "rem": 90.0,
}  # fmt: skip
"""instructions of operations on 64-bit whole numbers, as Triton and as assembly names them; of others two"""
UNKNOWN = (60.0, 2.0)
"""a function that the table does not know"""
_POSITIONS = ("tt.make_range", "tt.get_program_id", "tt.get_num_programs")
_LIBRARY_CONVERSION = re.compile(r"(float|double|u?int|u?ll|half)(2|_as_)(float|double|u?int|u?ll|half)")
_DIVISIONS = frozenset({"arith.divsi", "arith.divui", "arith.remsi", "arith.remui", "arith.ceildivsi"})
CONVERSIONS = frozenset({"arith.extf", "arith.truncf", "arith.sitofp", "arith.uitofp", "arith.fptosi", "arith.fptoui"})


def instructions(op: Op) -> Counts:
    """Instructions of one element (of the result, or of the operand of what has none) by unit."""
    name = op.name
    if name in FREE:
        return {}
    if name == "tt.elementwise_inline_asm":
        return {unit: count / int(op.attrs["pack"]) for unit, count in operations(op.attrs["asm"], assembled).items()}
    type_ = op.results[0].type if op.results else op.operands[0].type
    source = op.operands[0].type if op.operands else type_
    if name.startswith("math.") or name in ("tt.extern_elementwise", "tt.precise_sqrt", "tt.clampf"):
        return _function(op, source, type_)
    if name in ("arith.divf", "tt.precise_divf"):
        return _scaled(source.elem, *_FUNCTIONS["div"])
    if name == "arith.remf":
        return _scaled(source.elem, *_FUNCTIONS["fmod"])
    if name == "arith.negf":
        return {}  # a modifier of the operand
    if name in CONVERSIONS or name == "tt.fp_to_fp":
        return _conversion(op, source, type_)
    if name in _DIVISIONS:
        return {"int": _division(op, type_)}
    if (name == "tt.trans" and _of_memory(op)) or (name == "arith.select" and in_branch(op)):
        return {}
    if name in ("tt.trans", "tt.join", "tt.split", "tt.cat", "tt.gather"):
        return {"int": 2.0}  # through shared memory, or shuffles
    if name == "arith.cmpf" or source.is_float:
        return {float_unit(source.elem): 1.0}
    if name == "tt.addptr" and op.operands[1].type.bits <= 32:
        return {"imad": 1.0, "int": 1.0}
    if name == "arith.muli":
        known = known_number(op.operands[1])
        return {"imad": 1.0} if type_.bits <= 32 else {"imad": 2.0, "int": 1.0} if known else {"imad": 3.5, "int": 1.5}
    if name in ("arith.addi", "arith.subi") and type_.bits <= 32:
        return {"add": 1.0}
    return {"int": _WIDE.get(name.rpartition(".")[2], 2.0) if type_.bits > 32 else 1.0}


def in_branch(op: Op) -> bool:
    """Whether a choice between tiles goes by a number that a branch goes by: LLVM makes it there."""
    chosen = op.operands[0]
    return not chosen.type.is_block and op.results[0].type.is_block and any(use.name == "scf.if" for use in chosen.uses)


def _of_memory(op: Op) -> bool:
    """Whether a transposition is another view of a product's operand in shared memory."""
    source = op.operands[0].op
    return source is not None and source.name == "tt.load" and all(user.name in PRODUCTS for user in op.results[0].uses)


def assembled(statement: Statement) -> Counts:
    """What the assembler makes of a statement, by unit: some are several instructions."""
    kinds, name = set(statement.opcode[1:]), statement.name
    if name in ("div", "sqrt", "rcp") and kinds & {"f32", "f64"} and not kinds & {"approx", "full"}:
        return _scaled("f64" if "f64" in kinds else "f32", *_FUNCTIONS[name])
    return {"int": _WIDE[name]} if name in _WIDE and kinds & {"s64", "u64", "b64"} else counts_of(statement)


def _scaled(elem: str, arithmetic: float, special: float) -> Counts:
    """A function's counts in its element type: double precision has longer polynomials and no special functions."""
    if elem == "f64":
        return {"fp64": 2.0 * arithmetic + 8.0 * special}
    return {unit: count for unit, count in (("fp32", arithmetic), ("sfu", special)) if count}


def _function(op: Op, source: Type, type_: Type) -> Counts:
    name = op.name.rpartition(".")[2]
    if op.name == "tt.extern_elementwise":
        name = op.attrs.get("symbol", "").strip('"').removeprefix("__nv_").removeprefix("__ocml_").removesuffix("_f32")
    if op.name == "tt.clampf":
        return {float_unit(source.elem): 2.0}
    if name == "fma":
        return {float_unit(source.elem): 1.0}
    if op.name == "math.sqrt" and type_.elem == "f32":
        return {"sfu": 1.0}  # approximate, as tl.sqrt is
    if _LIBRARY_CONVERSION.match(name):
        return {} if "_as_" in name else {"int": float(max(_words(source), _words(type_)))}
    if name.startswith("powi") and (power := known_number(op.operands[1])):
        products = abs(power).bit_length() + abs(power).bit_count() - 1
        return _scaled(type_.elem, products + (_FUNCTIONS["div"][0] if power < 0 else 0.0), float(power < 0))
    if not source.is_float and not type_.is_float:
        return {"int": 2.0 * _words(type_)}
    return _scaled((source if source.is_float else type_).elem, *_FUNCTIONS.get(_plain(name), UNKNOWN))


def _plain(name: str) -> str:
    """``expf`` to ``exp``, ``fsqrt_rn`` to ``sqrt``, ``powf`` (as in ``math.powf``) to ``pow``."""
    for form in (name, name.removesuffix("f"), name.rpartition("_")[0].removeprefix("f").removeprefix("d")):
        for one in (form, form.removesuffix("f").removeprefix("precise_")):
            if one in _FUNCTIONS:
                return one
    return name


def _conversion(op: Op, source: Type, target: Type) -> Counts:
    """Between whole numbers and floats the unit of special functions converts, but a word to fp32 from Hopper on;
    signed bytes become bf16 by arithmetic (machine code by ptxas 12.8, sm_80 to 100)."""
    if "f64" in (source.elem, target.elem):
        return {"sfu": 1.0}
    if source.is_float and target.is_float:
        eight = 8 in (source.bits, target.bits)
        return {"int": 2.0} if eight else {"fp32": 0.5}  # packed two by two
    if source.bits == 1 or (source.bits == 32 and target.elem == "f32"):
        return {"int": 1.0}
    if source.bits == 8 and target.elem == "bf16" and op.name == "arith.sitofp":
        return {"int": 2.0, "bf16": 0.5}
    return {"sfu": 1.0, "int": float((target if source.is_float else source).bits < 32)}


def _words(type_: Type) -> int:
    return 2 if type_.bits > 32 else 1


def _division(op: Op, type_: Type) -> float:
    """By a known number: a multiplication and shifts; by an unknown one: a reciprocal and corrections.

    The reciprocal of a number that is the same for all elements is made once a thread, up to 32 bits. A remainder takes
    the quotient of the same numbers where there is one. With 64 bits half is corrections of the sign; numbers that are
    not known are divided by 32 bits where these hold them, as they hold most places (libdevice's way out takes 90).
    """
    dividend, divisor = op.operands[:2]
    wide, known, rest = type_.bits > 32, abs(known_number(divisor)), op.name.startswith("arith.rem")
    shifts, above = known & (known - 1) == 0, _never_negative(dividend)
    more = (4.0 if wide else 1.0) if rest and not (known and shifts and above) else 0.0
    if more and any(user.name.startswith("arith.div") and user.operands[1] is divisor for user in dividend.uses):
        return more
    if known:
        return more + (3.0 if not wide else (1.0 if above else 5.0) if shifts else 5.5 if above else 15.0)
    while divisor.op is not None and divisor.op.name in SPREADS:
        divisor = divisor.op.operands[0]
    same = not divisor.type.is_block and type_.is_block
    return 30.0 if wide else 13.0 if same else 28.0


def _never_negative(value: Value) -> bool:
    """Whether a compiler sees that a 64-bit index is at least 0: a sum or product of positions, programs, counters."""
    op = value.op
    if op is None:  # a loop's counter from 0 on
        loop = value.block.parent if value.block is not None else None
        return loop is not None and loop.name == "scf.for" and not value.index and _never_negative(loop.operands[0])
    if op.name == "arith.constant":
        return "-" not in op.attrs.get("value", "-")
    summed = op.name in ("arith.addi", "arith.muli") and value.type.bits > 32
    derived = summed or op.name in (*SPREADS, *_DIVISIONS, "arith.extsi", "arith.extui")
    return op.name in _POSITIONS or (derived and all(map(_never_negative, op.operands)))
