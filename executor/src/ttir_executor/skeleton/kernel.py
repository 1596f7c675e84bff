"""Compiles skeletons of kernels to native code, cached by the kernel's text."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

from ttir_executor.compiled import CompiledKernel, compile_ttir
from ttir_executor.lower.function import Lowered, Lowering
from ttir_executor.lower.jit import Code
from ttir_executor.lower.plan import walk
from ttir_executor.skeleton.slim import argument_name, slim
from ttir_executor.skeleton.steering import ATOMICS, Steering, steering_of
from ttir_executor.ttir.ir import TTIRError


@dataclass(frozen=True)
class SteeringRead:
    """A load or atomic whose result decides where the kernel goes."""

    operation: str
    argument: str | None
    """the pointer argument that it reads through; None for an address from memory"""
    decides: str
    """in words: "an address and a loop" """
    loc: str
    """``file:line``"""


@dataclass(frozen=True)
class Skeleton:
    """A kernel as a data-free device runs it."""

    kernel: CompiledKernel
    lowered: Lowered
    code: Code
    steering: Steering
    reads: tuple[SteeringRead, ...]
    serial: bool
    """programs steer one another through memory: all of them must run, in order"""
    followed: frozenset[str | None]
    """arguments through which it writes what it is steered by, and does so here; None for an address from memory"""
    loose: frozenset[str | None]
    """arguments through which it writes data, which is not there afterwards"""

    @cached_property
    def stores(self) -> tuple[Lowered, Code]:
        """The same without looking at reads that do not steer; large launches alone need it."""
        lowered = _lower(self.kernel, self.steering, loads=False)
        return lowered, _code(lowered)


@lru_cache(maxsize=256)
def skeleton_of(ttir: str, name: str | None = None, *, apart: bool = False) -> Skeleton:
    """The skeleton of a kernel's text. ``apart``: what it writes through addresses from memory is taken to be none of
    the arguments that steer it, which is for the caller to make sure of.

    Raises:
        TTIRError: malformed text.
        UnsupportedTTIR: what cannot be simulated.
    """
    kernel = compile_ttir(ttir, name=name)
    steering = steering_of(kernel.function, apart=apart)
    lowered = _lower(kernel, steering, loads=True)
    reads = tuple(
        SteeringRead(op.name, argument_name(op), steering.kinds(op).words(), op.loc)
        for op in steering.reads.values()
    )  # fmt: skip
    serial = bool(steering.writes) or any(read.operation in ATOMICS for read in reads)
    writes = [op for op in walk(kernel.function.body) if op.name == "tt.store" or op.name in ATOMICS]
    moved = {**steering.writes, **steering.reads}
    followed = frozenset(argument_name(op) for op in writes if id(op) in moved)
    loose = frozenset(argument_name(op) for op in writes if id(op) not in moved)
    return Skeleton(kernel, lowered, _code(lowered), steering, reads, serial, followed, loose)


def _lower(kernel: CompiledKernel, steering: Steering, loads: bool) -> Lowered:
    function = slim(kernel.function, steering, loads=loads)
    try:
        lowered = Lowering(function, checked=False, allow_store_fusion=False).run()
    except (LookupError, ValueError, TypeError, AttributeError, AssertionError, OverflowError) as error:
        if isinstance(error, TTIRError):
            raise
        raise TTIRError(f"the skeleton of kernel {kernel.name} cannot be lowered: {error!r}") from error
    atomics = any(block.atomics for block in lowered.blocks)
    return replace(lowered, has_atomics=atomics or bool(steering.writes))


def _code(lowered: Lowered) -> Code:
    return Code(lowered.text, lowered.symbol)
