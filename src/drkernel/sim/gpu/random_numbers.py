"""Random numbers of the simulated device: separate generators, which the host seeds but does not share."""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from drkernel.sim.gpu.operator_rules import OperatorRule
from drkernel.sim.wire.commands import ProtocolError

MAX_GENERATORS = 4096
STATE_BYTES = 16
OFFSET_STEP = 4
"""the amount by which one drawing operator advances a generator"""
_MIX = 0x9E3779B97F4A7C15


class _Counting:
    """A generator whose state is, as on CUDA, a seed and an offset that each drawing call moves on."""

    def __init__(self) -> None:
        self.torch = torch._C.Generator("cpu")
        """stands for it in operators' arguments"""
        self.seed, self.offset = self.torch.initial_seed(), 0  # torch's constant, as on CUDA

    def advance(self) -> torch.Generator:
        """A generator for the next call alone: what that draws depends on seed and offset, not on who drew before."""
        fresh = torch._C.Generator("cpu")
        fresh.manual_seed(self.seed if self.offset == 0 else (self.seed + self.offset * _MIX) % (1 << 63))
        self.offset += OFFSET_STEP
        return fresh

    def read(self) -> bytes:
        """Seed and offset."""
        return struct.pack("<QQ", self.seed, self.offset)

    def move(self, seed: int, offset: int) -> None:
        """Take up a state."""
        self.seed, self.offset = seed % (1 << 64), offset


class DeviceRandom:
    """The device's generators by number; number 0 is the default one."""

    def __init__(self) -> None:
        self._generators: dict[int, _Counting] = {}

    def generator(self, number: int) -> torch.Generator:
        """The generator of that number, made when first asked for. Raises :class:`ProtocolError` beyond the limit."""
        return self._numbered(number).torch

    def _numbered(self, number: int) -> _Counting:
        found = self._generators.get(number)
        if found is None:
            if len(self._generators) >= MAX_GENERATORS or number < 0:
                raise ProtocolError(f"no generator with number {number}: at most {MAX_GENERATORS} may be in use")
            self._generators[number] = found = _Counting()
        return found

    def seed(self, seed: int) -> None:
        """Seed the default generator."""
        self.command(0, seed, None)

    def command(self, number: int, seed: int | None, state: str | None) -> dict[str, Any]:
        """Seed a generator or set its state; without either, returns its seed and its state in hexadecimal."""
        generator = self._numbered(number)
        if seed is not None:
            generator.move(seed, 0)
        if state is not None:
            try:
                generator.move(*struct.unpack("<QQ", bytes.fromhex(state)))
            except (ValueError, struct.error) as error:
                raise ProtocolError(f"the state of a generator has {STATE_BYTES} bytes: seed and offset") from error
        if seed is not None or state is not None:
            return {}
        return {"seed": generator.seed, "state": generator.read().hex()}

    def run(self, rule: OperatorRule, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """Call an operator that draws, from the generator it was given or the device's default one."""
        return self.drawing(rule, args, kwargs)()

    def drawing(self, rule: OperatorRule, args: list[Any], kwargs: dict[str, Any]) -> Callable[[], Any]:
        """The call of an operator that draws: its numbers are those of now, whenever it is made."""
        named = {name: value for name, value in kwargs.items() if name != "generator"}
        given = kwargs.get("generator")
        counting = next((one for one in self._generators.values() if one.torch is given), None)
        generator = (counting or self._numbered(0)).advance()
        if rule.takes_generator:
            return partial(rule.call, *args, **named, generator=generator)

        def call() -> Any:
            host = torch.default_generator
            saved = host.get_state()
            host.set_state(generator.get_state())
            try:
                return rule.call(*args, **named)
            finally:
                host.set_state(saved)

        return call
