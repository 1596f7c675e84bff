"""Random numbers of the simulated device: separate generators, which the host seeds but does not share."""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable
from typing import Any

import torch

from drkernel.base.files import Recent
from drkernel.sim.gpu.operator_rules import OperatorRule
from drkernel.sim.wire.commands import ProtocolError

MAX_GENERATORS = 4096
STATE_BYTES = 16
OFFSET_STEP = 4
"""the amount by which one drawing operator advances a generator"""
STATES_KEPT = 256
"""states that the host was given, the latest ones"""
_MIX = 0x9E3779B97F4A7C15
Told = Recent[tuple[int, int], torch.Tensor]


class _Sequence:
    """Draws from one state on, each made when its numbers are asked for, or those of a later one."""

    def __init__(self, generator: torch.Generator):
        self.generator = generator
        self._to_come: deque[_Draw] = deque()

    def draw(self, call: Callable[[torch.Generator], Any]) -> Callable[[], Any]:
        """The next draw."""
        self._to_come.append(_Draw(self, call))
        return self._to_come[-1].result

    def catch_up(self, last: _Draw | None = None) -> None:
        """Make the draws to come, up to ``last``."""
        while self._to_come and (last is None or not last.made):
            draw = self._to_come.popleft()
            draw.made, draw.numbers = True, draw.call(self.generator)


class _Draw:
    def __init__(self, sequence: _Sequence, call: Callable[[torch.Generator], Any]):
        self.sequence, self.call = sequence, call
        self.made, self.numbers = False, None

    def result(self) -> Any:
        """Its numbers, once."""
        self.sequence.catch_up(self)
        numbers, self.numbers = self.numbers, None
        return numbers


class _Counting:
    """A generator whose state is, as on CUDA, a seed and an offset that each drawing call moves on."""

    def __init__(self, told: Told) -> None:
        """``told``: states that the host was given of any generator, which may go to another one."""
        self.sequence = _Sequence(torch._C.Generator("cpu"))
        self.seed, self.offset = self.torch.initial_seed(), 0  # torch's constant, as on CUDA
        self._told: tuple[Told, Told] = Recent(STATES_KEPT), told

    @property
    def torch(self) -> torch.Generator:
        """What stands for it in operators' arguments."""
        return self.sequence.generator

    def advance(self) -> _Sequence:
        """The sequence for the next call."""
        self.offset += OFFSET_STEP
        return self.sequence

    def read(self) -> bytes:
        """Seed and offset, which lead back to here."""
        self.sequence.catch_up()
        for told in self._told:
            told[self.seed, self.offset] = self.torch.get_state()
        return struct.pack("<QQ", self.seed, self.offset)

    def move(self, seed: int, offset: int) -> None:
        """Restore a state that was read; a made-up state leads to the same sequence every time."""
        self.seed, self.offset = seed % (1 << 64), offset
        self.sequence = _Sequence(torch._C.Generator("cpu"))
        known = [found for told in self._told if (found := told.get((self.seed, offset))) is not None]
        if known:
            self.torch.set_state(known[0])
        else:
            self.torch.manual_seed(self.seed if offset == 0 else (self.seed + offset * _MIX) % (1 << 63))


class DeviceRandom:
    """The device's generators by number; number 0 is the default one."""

    def __init__(self) -> None:
        self._generators: dict[int, _Counting] = {}
        self._told: Told = Recent(STATES_KEPT)

    def generator(self, number: int) -> torch.Generator:
        """The generator of that number, made when first asked for. Raises :class:`ProtocolError` beyond the limit."""
        return self._numbered(number).torch

    def _numbered(self, number: int) -> _Counting:
        found = self._generators.get(number)
        if found is None:
            if len(self._generators) >= MAX_GENERATORS or number < 0:
                raise ProtocolError(f"no generator with number {number}: at most {MAX_GENERATORS} may be in use")
            self._generators[number] = found = _Counting(self._told)
        return found

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
        """The call of an operator that draws, which may wait: its numbers are those of now."""
        named = {name: value for name, value in kwargs.items() if name != "generator"}
        given = kwargs.get("generator")
        counting = next((one for one in self._generators.values() if one.torch is given), None)
        sequence = (counting or self._numbered(0)).advance()
        if rule.takes_generator:
            return sequence.draw(lambda generator: rule.call(*args, **named, generator=generator))

        def call(generator: torch.Generator) -> Any:
            host = torch.default_generator
            saved = host.get_state()
            host.set_state(generator.get_state())
            try:
                return rule.call(*args, **named)
            finally:
                generator.set_state(host.get_state())
                host.set_state(saved)

        return sequence.draw(call)
