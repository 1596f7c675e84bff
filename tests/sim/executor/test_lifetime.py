"""How long values need scratch memory, on hand-written IR, and that the arena never gives two of them one place."""

import random

import pytest

from ttir_executor.lower.function import Lowering
from ttir_executor.lower.plan import FOREVER, Arena, Lifetimes, Planner, walk
from ttir_executor.ttir.ir import Function, Op, TTIRError, UnsupportedTTIR, Value
from ttir_executor.ttir.parser import parse_ttir

BLOCK = "tensor<64xf32>"


def _function(body: str) -> Function:
    lines = "\n".join("    " + line for line in body.strip().splitlines())
    return parse_ttir(f"module {{\n  tt.func public @k(%p: !tt.ptr<f32>, %n: i32, %c: i1) {{\n{lines}\n  }}\n}}\n")


HEAD = f"""
%zero = arith.constant 0 : i32
%one = arith.constant 1 : i32
%r = tt.make_range {{end = 64 : i32, start = 0 : i32}} : tensor<64xi32>
%s = tt.splat %p : !tt.ptr<f32> -> tensor<64x!tt.ptr<f32>>
%at = tt.addptr %s, %r : tensor<64x!tt.ptr<f32>>, tensor<64xi32>
%a = tt.load %at : tensor<64x!tt.ptr<f32>>
tt.store %at, %a : tensor<64x!tt.ptr<f32>>
%b = math.exp %a : {BLOCK}
"""
"""``%a`` and ``%b`` are values that need memory as soon as two operations use them"""


class Case:
    """A function with its lifetimes; values and operations by name."""

    def __init__(self, body: str):
        self.function = _function(HEAD + body)
        self.inline = Planner(self.function, False).run().inline
        self.lifetimes = Lifetimes(self.function, self.inline)
        self.ops = walk(self.function.body)

    def value(self, name: str) -> Value:
        return next(v for op in self.ops for v in op.results if v.name == name)

    def op(self, name: str, which: int = 0) -> Op:
        return [op for op in self.ops if op.name == name][which]

    def last(self, name: str) -> int:
        return self.lifetimes.last(self.value(name))


def test_the_inner_of_two_loops_counts_for_what_the_outer_computes() -> None:
    case = Case(f"""
scf.for %i = %zero to %n step %one  : i32 {{
  %d = math.exp %b : {BLOCK}
  scf.for %j = %zero to %n step %one  : i32 {{
    tt.store %at, %d : tensor<64x!tt.ptr<f32>>
  }}
}}
tt.return""")
    outer, inner = case.op("scf.for"), case.op("scf.for", 1)
    assert case.last("%d") == case.lifetimes.end(inner)
    assert case.last("%b") == case.lifetimes.end(outer)


def test_what_a_while_loop_carries_is_kept() -> None:
    case = Case(f"""
%f = math.cos %a : {BLOCK}
tt.store %at, %f : tensor<64x!tt.ptr<f32>>
%w:2 = scf.while (%x = %b, %k = %zero) : ({BLOCK}, i32) -> ({BLOCK}, i32) {{
  %t = arith.cmpi slt, %k, %n : i32
  scf.condition(%t) %x, %k : {BLOCK}, i32
}} do {{
^bb0(%y: {BLOCK}, %l: i32):
  %d = math.exp %y : {BLOCK}
  %e = arith.addf %d, %f : {BLOCK}
  %m = arith.addi %l, %one : i32
  scf.yield %e, %m : {BLOCK}, i32
}}
tt.store %at, %w#0 : tensor<64x!tt.ptr<f32>>
tt.return""")
    assert case.last("%b") == FOREVER
    assert case.last("%f") == case.lifetimes.end(case.op("scf.while"))


@pytest.mark.parametrize(
    "body",
    ["cf.br ^bb1\n^bb1:\n  cf.cond_br %c, ^bb1, ^bb2\n^bb2:\n  tt.return",
     "cf.br ^bb1\n^bb1:\n  cf.br ^bb2\n^bb2:\n  cf.cond_br %c, ^bb1, ^bb3\n^bb3:\n  tt.return"],
)  # fmt: skip
def test_a_branch_backwards_is_refused(body: str) -> None:
    """A loop of branches would count no steps and end no lifetimes."""
    with pytest.raises(UnsupportedTTIR, match="branch backwards"):
        _function(HEAD + body)


@pytest.mark.parametrize("body", ["cf.br ^bb7\n^bb1:\n  tt.return", "tt.return\n^bb1:\n  tt.return"])
def test_a_branch_to_nowhere_and_a_block_from_nowhere_are_refused(body: str) -> None:
    with pytest.raises(TTIRError):
        _function(HEAD + body)


@pytest.mark.parametrize("seed", range(20))
def test_places_of_values_that_live_at_one_time_do_not_overlap(seed: int) -> None:
    rng, arena = random.Random(seed), Arena()
    given: list[tuple[int, int, int, int]] = []  # first byte, end, from, until
    now = 0
    for _ in range(300):
        now += rng.randint(0, 3)
        # a loop's end asks with the position of its start
        asked = max(0, now - rng.choice([0, 0, 0, 20]))
        nbytes, until = 64 * rng.randint(1, 40), now + rng.randint(0, 60)
        offset = arena.take(nbytes, asked, until)
        for first, end, start, last in given:
            apart = offset >= end or offset + nbytes <= first
            assert apart or last < asked or start > until
        assert offset % 64 == 0 and offset + nbytes <= arena.size
        given.append((offset, offset + nbytes, asked, until))
    assert arena.size < sum(end - first for first, end, _, _ in given)


def test_a_chain_of_values_needs_the_memory_of_two() -> None:
    steps = "\n".join(
        f"%d{k} = math.exp %{'b' if k == 0 else f'd{k - 1}'} : {BLOCK}\n"
        f"tt.store %at, %d{k} : tensor<64x!tt.ptr<f32>>\ntt.store %at, %d{k} : tensor<64x!tt.ptr<f32>>"
        for k in range(12)
    )
    lowered = Lowering(_function(HEAD + steps + "\ntt.return"), checked=False, allow_store_fusion=False).run()
    one = 64 * 4 + 64
    assert lowered.arena_bytes <= 4 * one


def test_a_long_chain_of_index_arithmetic_is_no_trouble() -> None:
    steps = "\n".join(f"%i{k + 1} = arith.addi %{'r' if k == 0 else f'i{k}'}, %r : tensor<64xi32>" for k in range(1500))
    case = Case(f"{steps}\n%v = arith.sitofp %i1500 : tensor<64xi32> to {BLOCK}\ntt.store %at, %v : "
                "tensor<64x!tt.ptr<f32>>\ntt.return")  # fmt: skip
    assert case.last("%r") == case.lifetimes.end(case.op("tt.store", 1))
