"""Random numbers of the simulated device: separate generators, which the host seeds but does not share."""

from __future__ import annotations

from typing import Any

import torch

from drkernel.sim.gpu.operator_rules import OperatorRule
from drkernel.sim.wire.commands import ProtocolError

MAX_GENERATORS = 4096


class DeviceRandom:
    """The device's generators by number; number 0 is the default one."""

    def __init__(self) -> None:
        self._generators: dict[int, torch.Generator] = {}

    def generator(self, number: int) -> torch.Generator:
        """The generator of that number, made when first asked for. Raises :class:`ProtocolError` beyond the limit."""
        found = self._generators.get(number)
        if found is None:
            if len(self._generators) >= MAX_GENERATORS or number < 0:
                raise ProtocolError(f"no generator with number {number}: at most {MAX_GENERATORS} may be in use")
            self._generators[number] = found = torch._C.Generator("cpu")  # seeded with torch's constant, as on CUDA
        return found

    def seed(self, seed: int) -> None:
        """Seed the default generator."""
        self.generator(0).manual_seed(seed)

    def command(self, number: int, seed: int | None, state: str | None) -> dict[str, Any]:
        """Seed a generator or set its state; without either, returns its seed and its state in hexadecimal."""
        generator = self.generator(number)
        if seed is not None:
            generator.manual_seed(seed)
        if state is not None:
            try:
                generator.set_state(torch.frombuffer(bytearray.fromhex(state), dtype=torch.uint8))
            except (ValueError, RuntimeError) as error:
                raise ProtocolError("malformed state of a generator") from error
        if seed is not None or state is not None:
            return {}
        return {"seed": generator.initial_seed(), "state": bytes(generator.get_state().tolist()).hex()}

    def run(self, rule: OperatorRule, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """Call an operator that draws, from the generator it was given or the device's default one."""
        generator = kwargs.pop("generator", None) or self.generator(0)
        if rule.takes_generator:
            return rule.call(*args, **kwargs, generator=generator)
        host = torch.default_generator
        saved = host.get_state()
        host.set_state(generator.get_state())
        try:
            return rule.call(*args, **kwargs)
        finally:
            generator.set_state(host.get_state())
            host.set_state(saved)
