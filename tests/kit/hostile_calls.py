"""Hostile calls of the device's operators, by number: the same seed and number always give the same call.

``operator_calls.json`` holds a few plausible calls of each overload: tensors as ``{"t": [shape, dtype, stride?], "r":
[least, greatest value], "v": values}``. A hostile call is one of them with one to four things made wrong: shapes,
strides, dtypes, indices, numbers, aliases, ``out=``; or, for overloads without any, arguments by the schema's types.
"""

from __future__ import annotations

import functools
import json
import math
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from drkernel.sim.gpu.engine import DeviceEngine
from drkernel.sim.gpu.operator_rules import INTERNAL, LIBRARY_CALLS, PUBLIC, rule_of
from drkernel.sim.spec import get_spec
from drkernel.sim.wire.commands import DTYPES, Ref, UnsupportedOp

TEMPLATES = Path(__file__).with_name("operator_calls.json")
LENGTHS = (0, 1, 1, 2, 2, 3, 3, 4, 5, 7, 8, 16, 17, 33)
NUMBERS = (-(2**63), -(2**31) - 1, -3, -2, -1, 0, 1, 2, 3, 4, 5, 8, 17, 100, 2**20, 2**31, 2**40, 2**62, 2**63 - 1)
FLOATS = (0.0, -0.0, 1.0, -1.0, 0.5, 1e-40, 1e30, -1e30, math.inf, -math.inf, math.nan)
FAVOURED = ("float32", "float32", "float32", "float64", "bfloat16", "int64", "int64", "int32", "bool", "complex64")
MAX_ELEMENTS = 20_000
"""of one tensor: what is to be found does not need large ones"""


@functools.cache
def overloads() -> tuple[str, ...]:
    """Every overload that the device allows."""
    found = set(LIBRARY_CALLS)
    for base in {*PUBLIC, *(f"{base}_" for base in PUBLIC), *INTERNAL}:
        packet = getattr(torch.ops.aten, base, None)
        found |= {f"{base}.{overload}" for overload in (packet.overloads() if packet is not None else ())}
    return tuple(sorted(name for name in found if _allowed(name)))


def _allowed(name: str) -> bool:
    try:
        rule_of(name)
    except UnsupportedOp:
        return False
    return True


@functools.cache
def _templates() -> dict[str, list[Any]]:
    return json.loads(TEMPLATES.read_text(encoding="utf-8"))


@functools.cache
def templates_of(name: str) -> list[Any]:
    """Plausible calls of an overload: its own, else those of its functional or in-place sibling."""
    base, _, overload = name.partition(".")
    stem = base.rstrip("_") if not base.endswith("__") else base
    own = _templates().get(name)
    if own:
        return own
    siblings = (f"{stem}.{overload}", f"{stem}.default", f"{stem}.{overload.removesuffix('_out')}", f"_{stem}.default")
    return next((_templates()[one] for one in siblings if one in _templates()), [])


class HostileCall:
    """One call, made on an engine."""

    def __init__(self, seed: int, number: int):
        self.random = random.Random(f"{seed}:{number}")
        self.torch_seed = self.random.getrandbits(31)
        names = overloads()
        self.name = names[number % len(names)] if self.random.random() < 0.5 else self.random.choice(names)
        self.rule = rule_of(self.name)
        self.said: list[str] = []
        """the arguments, in words"""

    def run(self, engine: DeviceEngine, about_to: Callable[[HostileCall], None] | None = None) -> str:
        """Make the arguments, call, free everything; the outcome in a word ('ok', or the error's class).

        ``about_to`` is told before the operator runs.
        """
        torch.default_generator.manual_seed(self.torch_seed)  # torch.manual_seed formats a traceback for each GPU kind
        self.engine = engine
        self.made: list[int] = []
        engine.fault = None
        try:
            args, kwargs = self._arguments()
            if about_to is not None:
                about_to(self)
            outcome = self._call(args, kwargs)
        except Exception as error:
            outcome = type(error).__name__
        for handle in set(self.made):
            engine.free(handle)
        return outcome

    def _call(self, args: list[Any], kwargs: dict[str, Any]) -> str:
        for spec in _specs(self.engine.op(self.name, args, kwargs)):
            self.made.append(spec.handle)
            self.engine.tensor(spec.handle).clone()  # reads all that it claims to hold
        return "ok"

    def __str__(self) -> str:
        return f"{self.name}({', '.join(self.said)})"

    # ---- arguments

    def _arguments(self) -> tuple[list[Any], dict[str, Any]]:
        options = templates_of(self.name)
        if options and self.random.random() < 0.93:
            args, kwargs = self.random.choice(options)
            args, kwargs = json.loads(json.dumps(args)), dict(kwargs)
            for _ in range(self.random.choice((0, 1, 1, 1, 2, 2, 3, 4))):
                self._spoil(args, kwargs)
        else:
            args = [self._invent(argument.type) for argument in self._schema() if not argument.kwarg_only]
            kwargs = {}
        self._options(kwargs)
        made = [self._make(value) for value in args]
        named = {key: self._make(value) for key, value in kwargs.items()}
        if self.random.random() < 0.08:
            made = self._alias(made)
        for key, value in named.items():
            self.said.append(f"{key}={value!r}")
        return made, named

    def _schema(self) -> list[Any]:
        call = self.rule.call  # one that computes halves in fp32 stands around the overload
        return list(getattr(call, "overload", call)._schema.arguments)

    def _options(self, kwargs: dict[str, Any]) -> None:
        """Arguments by name: those that are written (``out=``) must be there, the others may be."""
        for argument in self._schema():
            if not argument.kwarg_only or argument.name in ("device", "layout", "pin_memory", "generator"):
                continue
            written = argument.alias_info is not None and argument.alias_info.is_write
            needed = written or not argument.has_default_value()
            if argument.name not in kwargs and (needed or self.random.random() < 0.1):
                kwargs[argument.name] = self._invent(argument.type)

    def _alias(self, made: list[Any]) -> list[Any]:
        """One tensor in the place of another."""
        places = [index for index, value in enumerate(made) if isinstance(value, Ref)]
        if len(places) > 1:
            source, target = self.random.sample(places, 2)
            made[target] = made[source]
        return made

    def _spoil(self, args: list[Any], kwargs: dict[str, Any]) -> None:
        """Make one thing wrong, somewhere in the arguments."""
        places: list[tuple[Any, Any]] = [(args, index) for index in range(len(args))]
        places += [(kwargs, key) for key in kwargs]
        for holder, key in list(places):
            if isinstance(holder[key], list):
                places += [(holder[key], index) for index in range(len(holder[key]))]
        if places:
            holder, key = self.random.choice(places)
            holder[key] = self._spoilt(holder[key])

    def _spoilt(self, value: Any) -> Any:
        if isinstance(value, dict) and "t" in value:
            return self._spoilt_tensor({**value, "t": list(value["t"])})
        if isinstance(value, bool):
            return not value
        if isinstance(value, int):
            return self.random.choice((value + 1, value - 1, -value, 2 * value, self.random.choice(NUMBERS)))
        if isinstance(value, float):
            return {"f": self.random.choice(FLOATS)}
        if isinstance(value, list):
            return self.random.choice((value[:-1], [*value, *value[-1:]], value[::-1], []))
        return self._tensor() if self.random.random() < 0.3 else value

    def _spoilt_tensor(self, value: dict[str, Any]) -> Any:
        shape, dtype = list(value["t"][0]), value["t"][1]
        how = self.random.randrange(9)
        if how == 0 and shape:
            shape[self.random.randrange(len(shape))] += self.random.choice((-1, 1, 2))
        elif how == 1 and shape:
            shape[self.random.randrange(len(shape))] = self.random.choice(LENGTHS)
        elif how == 2:
            shape.insert(self.random.randrange(len(shape) + 1), self.random.choice((0, 1, 2, 3)))
        elif how == 3 and shape:
            shape.pop(self.random.randrange(len(shape)))
        elif how == 4:
            dtype = self.random.choice(FAVOURED)
        elif how == 5:
            value["stride"] = self.random.choice(("transposed", "expanded", "gaps", "overlap"))
        elif how == 6 and shape:
            self.random.shuffle(shape)
        else:  # contents: out of range, extreme, not a number
            value["wild"] = self.random.choice(("edge", "edge", "negative", "huge", "special"))
        return {**value, "t": [[max(0, size) for size in shape], dtype]}

    def _invent(self, kind: Any) -> Any:
        """A value of a schema's type."""
        text = str(kind)
        if text.startswith("Optional"):
            return None if self.random.random() < 0.4 else self._invent(kind.getElementType())
        if text.startswith("List"):
            element = kind.getElementType()
            small = str(element) in ("int", "SymInt") and self.random.random() < 0.8
            count = self.random.choice((0, 1, 2, 2, 3, 4))
            return [self.random.choice(LENGTHS) if small else self._invent(element) for _ in range(count)]
        if text == "Tensor":
            return self._tensor()
        if text in ("int", "SymInt"):
            return self.random.choice((0, 1, 2, -1)) if self.random.random() < 0.6 else self.random.choice(NUMBERS)
        if text in ("float", "number", "Scalar"):
            return self.random.choice((0, 1, 2, {"f": 0.5}, {"f": self.random.choice(FLOATS)}))
        if text == "bool":
            return self.random.random() < 0.5
        if text == "str":
            return self.random.choice(("none", "mean", "sum", "linear", "right", "left", "reflect", "L", "amax"))
        return None

    def _tensor(self) -> dict[str, Any]:
        shape = [self.random.choice(LENGTHS) for _ in range(self.random.choice((0, 1, 1, 2, 2, 3, 3, 4, 5)))]
        made: dict[str, Any] = {"t": [shape, self.random.choice(FAVOURED)]}
        if self.random.random() < 0.2:
            made["stride"] = self.random.choice(("transposed", "expanded", "gaps", "overlap"))
        if self.random.random() < 0.3:
            made["wild"] = self.random.choice(("edge", "negative", "huge", "special"))
        return made

    # ---- values

    def _make(self, value: Any) -> Any:
        if isinstance(value, dict) and "t" in value:
            ref = self._upload(value)
            self.said.append(json.dumps(value))
            return ref
        if isinstance(value, dict):
            made = _plain(value)
        elif isinstance(value, list):
            return [self._make(item) for item in value]
        else:
            made = value
        self.said.append(repr(made))
        return made

    def _upload(self, value: dict[str, Any]) -> Ref:
        tensor = self._strided(self._contents(value), value.get("stride") or value["t"][2:])
        handle = self.engine.register(tensor).handle
        self.made.append(handle)
        return Ref(handle)

    def _contents(self, value: dict[str, Any]) -> torch.Tensor:
        shape, dtype = value["t"][0], DTYPES[value["t"][1]]
        while math.prod(shape) > MAX_ELEMENTS:
            shape = [min(size, 5) for size in shape][:6]
        if dtype.is_floating_point or dtype.is_complex:
            tensor = torch.rand(shape, dtype=torch.float64).to(dtype)
            if "wild" in value and tensor.numel():
                tensor.view(-1)[self.random.randrange(tensor.numel())] = self.random.choice(FLOATS)
            return tensor
        least, most = value.get("r", (0, 3))
        if value.get("v") is not None and len(value["v"]) == math.prod(shape) and "wild" not in value:
            return torch.tensor(value["v"]).reshape(shape).to(dtype)
        tensor = torch.randint(least, most + 1, shape) if dtype != torch.bool else torch.rand(shape) < 0.5
        if "wild" in value and tensor.numel() and dtype != torch.bool:
            bad = {"edge": (least - 1, most + 1, most + 2), "negative": (-1, -2, -100), "huge": (2**31, 2**40, 2**62)}
            extremes = (2**63 - 1, -(2**63), 0, 1 << 20)
            tensor.view(-1)[self.random.randrange(tensor.numel())] = self.random.choice(
                bad.get(value["wild"], extremes)
            )
        return tensor.to(dtype)

    def _strided(self, tensor: torch.Tensor, how: Any) -> torch.Tensor:
        if how == "transposed" and tensor.dim() > 1:
            return tensor.transpose(0, -1).contiguous().transpose(0, -1)
        if how == "expanded" and tensor.dim() and tensor.shape[0]:
            return tensor[:1].expand(tensor.shape)
        if how == "gaps" and tensor.dim():
            return torch.stack([tensor, tensor], -1)[..., 1]
        if how == "overlap" and tensor.dim() and tensor.numel() > 1:
            flat = tensor.reshape(-1)
            return flat.as_strided((max(1, tensor.numel() // 2), 2), (1, 1))
        return tensor


def _plain(value: dict[str, Any]) -> Any:
    if "d" in value:
        return DTYPES[value["d"]]
    return complex(*value["c"]) if "c" in value else value["f"]


def _specs(value: Any) -> list[Any]:
    if isinstance(value, (list, tuple)):
        return [spec for item in value for spec in _specs(item)]
    return [value] if hasattr(value, "handle") else []


def new_engine() -> DeviceEngine:
    """A device for hostile calls."""
    return DeviceEngine(get_spec("h200"), memory_bytes=256 << 20)
