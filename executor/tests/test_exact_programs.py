"""Hand-written TTIR on exact values: programs on different ways, memory, atomics, and what ends an evaluation."""

import time

import numpy as np
import pytest

from ttir_executor.arrays import run
from ttir_executor.exact import interpreter
from ttir_executor.exact.field import UNDEFINED, Field
from ttir_executor.exact.interpreter import run_exact
from ttir_executor.exact.memory import ExactMemory, Undecided
from ttir_executor.exact.values import Exact, compare
from ttir_executor.ttir.parser import parse_ttir

X, Y, N = 1 << 16, 2 << 16, 3 << 16
SIZE = 256


def evaluate(body: str, programs: int, memory: ExactMemory | None = None, **options: float) -> ExactMemory:
    """Run a kernel of ``%x``, ``%y`` (f32) and ``%n`` (i32), where x is drawn, n counts from 0 and y is unwritten."""
    if memory is None:
        memory = ExactMemory(Field(4))
        for base in (X, Y, N):
            memory.add(base, 4 * SIZE)
        memory.write(X + 4 * np.arange(SIZE), "f32", Exact.drawn(memory.field, "x", np.linspace(-2, 2, SIZE)))
        memory.write(N + 4 * np.arange(SIZE), "i32", np.arange(SIZE))
    run_exact(parse_ttir(text(body)), (programs,), [X, Y, N], memory, **options)  # type: ignore[arg-type]
    return memory


def text(body: str) -> str:
    pointers = "%x: !tt.ptr<f32>, %y: !tt.ptr<f32>, %n: !tt.ptr<i32>"
    return f"module {{\ntt.func public @kernel({pointers}) {{\n{PROLOGUE}{body}\n}}\n}}"


PROLOGUE = """%pid = tt.get_program_id x : i32
%c0 = arith.constant 0 : i32
%c1 = arith.constant 1 : i32
%c3 = arith.constant 3 : i32
%zero = arith.constant 0.000000e+00 : f32
%px = tt.addptr %x, %pid : !tt.ptr<f32>, i32
%py = tt.addptr %y, %pid : !tt.ptr<f32>, i32
%pn = tt.addptr %n, %pid : !tt.ptr<i32>, i32
"""


def floats(memory: ExactMemory, base: int, count: int) -> Exact:
    found = memory.read(base + 4 * np.arange(count), "f32")
    assert isinstance(found, Exact)
    return found


def integers(memory: ExactMemory, count: int) -> list[int]:
    return np.asarray(memory.read(N + 4 * np.arange(count), "i32")).tolist()  # type: ignore[no-any-return]


def natively(body: str, programs: int) -> tuple[np.ndarray, np.ndarray]:
    """What the native executor leaves in y and n."""
    x, y = np.linspace(-2, 2, SIZE).astype(np.float32), np.zeros(SIZE, np.float32)
    n = np.arange(SIZE, dtype=np.int32)
    run(text(body), (programs,), [x, y, n])
    return y, n


LOOP = """%v = tt.load %px : !tt.ptr<f32>
%s = scf.for %i = %c0 to %pid step %c1 iter_args(%acc = %zero) -> (f32) : i32 {
  %next = arith.addf %acc, %v : f32
  scf.yield %next : f32
}
tt.store %py, %s : !tt.ptr<f32>
tt.return"""
BRANCH = """%v = tt.load %px : !tt.ptr<f32>
%odd = arith.remsi %pid, %c3 : i32
%c = arith.cmpi eq, %odd, %c0 : i32
%r, %k = scf.if %c -> (f32, i32) {
  %two = arith.addf %v, %v : f32
  scf.yield %two, %c3 : f32, i32
} else {
  %m = arith.mulf %v, %v : f32
  scf.yield %m, %pid : f32, i32
}
tt.store %py, %r : !tt.ptr<f32>
tt.store %pn, %k : !tt.ptr<i32>
tt.return"""
WHILE = """%r = scf.while (%k = %pid) : (i32) -> i32 {
  %c = arith.cmpi sgt, %k, %c3 : i32
  scf.condition(%c) %k : i32
} do {
^bb0(%k: i32):
  %v = tt.load %px : !tt.ptr<f32>
  %old = tt.load %py : !tt.ptr<f32>
  tt.store %py, %v : !tt.ptr<f32>
  %less = arith.subi %k, %c3 : i32
  scf.yield %less : i32
}
tt.store %pn, %r : !tt.ptr<i32>
tt.return"""
EARLY = """%v = tt.load %px : !tt.ptr<f32>
%c = arith.cmpi sgt, %pid, %c3 : i32
cf.cond_br %c, ^bb1, ^bb2(%v, %c1 : f32, i32)
^bb1:
%odd = arith.andi %pid, %c1 : i32
%d = arith.cmpi eq, %odd, %c0 : i32
%w = arith.negf %v : f32
cf.cond_br %d, ^bb3, ^bb2(%w, %pid : f32, i32)
^bb2(%u: f32, %k: i32):
%s = arith.addf %u, %v : f32
tt.store %py, %s : !tt.ptr<f32>
tt.store %pn, %k : !tt.ptr<i32>
tt.return
^bb3:
tt.return"""


@pytest.mark.parametrize("body", [LOOP, BRANCH, WHILE, EARLY], ids=["loop", "branch", "while", "early return"])
@pytest.mark.parametrize("most", [1, 1 << 20])
def test_programs_take_their_own_ways(body: str, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interpreter, "MOST_ELEMENTS", most)
    memory = evaluate(body, 12)
    y, n = natively(body, 12)
    got = np.nan_to_num(floats(memory, Y, 12).f)
    assert np.allclose(got, y[:12], rtol=1e-6, atol=1e-6)
    assert integers(memory, 12) == n[:12].tolist()


def test_residues_follow_the_way() -> None:
    memory = evaluate(LOOP, 12)
    times = Exact.whole(memory.field, np.arange(12))
    assert compare(floats(memory, Y, 12), floats(memory, X, 12) * times).equal.all()
    memory = evaluate(BRANCH, 12)
    x, y = floats(memory, X, 12), floats(memory, Y, 12)
    third = np.arange(12) % 3 == 0
    assert (compare(y, x + x).equal == third).all() and (compare(y, x * x).equal == ~third).all()


BLOCK = """%r = tt.make_range {end = 8 : i32, start = 0 : i32} : tensor<8xi32>
%bx = tt.splat %x : !tt.ptr<f32> -> tensor<8x!tt.ptr<f32>>
%ax = tt.addptr %bx, %r : tensor<8x!tt.ptr<f32>>, tensor<8xi32>
%by = tt.splat %y : !tt.ptr<f32> -> tensor<8x!tt.ptr<f32>>
%ay = tt.addptr %by, %r : tensor<8x!tt.ptr<f32>>, tensor<8xi32>
%four = arith.constant dense<4> : tensor<8xi32>
%m = arith.cmpi slt, %r, %four : tensor<8xi32>
"""


def test_masked_lanes_are_unknown_without_other() -> None:
    memory = evaluate(
        BLOCK
        + """%v = tt.load %ax, %m : tensor<8x!tt.ptr<f32>>
tt.store %ay, %v : tensor<8x!tt.ptr<f32>>
tt.return""",
        1,
    )
    x, y = floats(memory, X, 8), floats(memory, Y, 8)
    assert compare(x, y).equal.tolist() == [True] * 4 + [False] * 4
    assert (np.broadcast_to(y.lost, 8)[4:] == UNDEFINED).all() and y.f[4:].tolist() == [0.0] * 4


def test_integers_that_nobody_wrote_matter_only_where_they_are_read() -> None:
    body = (
        BLOCK
        + """%far = arith.constant 252 : i32
%bn = tt.splat %n : !tt.ptr<i32> -> tensor<8x!tt.ptr<i32>>
%an = tt.addptr %bn, %r : tensor<8x!tt.ptr<i32>>, tensor<8xi32>
%v = tt.load %an, %MASK : tensor<8x!tt.ptr<i32>>
%w = arith.sitofp %v : tensor<8xi32> to tensor<8xf32>
tt.store %ay, %w : tensor<8x!tt.ptr<f32>>
tt.return"""
    )
    for mask, ends in (("%m", False), ("%all", True)):
        memory = ExactMemory(Field(4))
        for base in (X, Y, N):
            memory.add(base, 4 * SIZE)
        memory.write(N + 4 * np.arange(4), "i32", np.arange(4))
        text_ = "%all = arith.constant dense<true> : tensor<8xi1>\n" + body.replace("%MASK", mask)
        if ends:
            with pytest.raises(Undecided, match="nobody wrote"):
                evaluate(text_, 1, memory)
        else:
            evaluate(text_, 1, memory)
            assert floats(memory, Y, 8).f.tolist() == [0, 1, 2, 3, 0, 0, 0, 0]


ARGMAX = (
    BLOCK
    + """%v = tt.load %ax : tensor<8x!tt.ptr<f32>>
%best:2 = "tt.reduce"(%v, %r) <{axis = 0 : i32}> ({
^bb0(%a: f32, %i: i32, %b: f32, %j: i32):
  %gt = arith.cmpf ogt, %a, %b : f32
  %s = arith.select %gt, %a, %b : f32
  %t = arith.select %gt, %i, %j : i32
  tt.reduce.return %s, %t : f32, i32
}) : (tensor<8xf32>, tensor<8xi32>) -> (f32, i32)
tt.store %y, %best#0 : !tt.ptr<f32>
tt.store %n, %best#1 : !tt.ptr<i32>
tt.return"""
)


def test_reductions_with_functions_of_their_own() -> None:
    memory = evaluate(ARGMAX, 1)
    assert integers(memory, 1) == [7]
    assert compare(floats(memory, Y, 1), floats(memory, X, 8).map(lambda part: part[7:])).equal.all()


ATOMIC = """%v = tt.load %px : !tt.ptr<f32>
%old = tt.atomic_rmw fadd, acq_rel, gpu, %y, %v, %true : (!tt.ptr<f32>, f32, i1) -> f32
%ticket = tt.atomic_rmw add, acq_rel, gpu, %n, %c3, %true : (!tt.ptr<i32>, i32, i1) -> i32
%at = arith.addi %pid, %c3 : i32
%p = tt.addptr %n, %at : !tt.ptr<i32>, i32
tt.store %p, %ticket : !tt.ptr<i32>
tt.return"""


def zeroed() -> ExactMemory:
    memory = ExactMemory(Field(4))
    for base in (X, Y, N):
        memory.add(base, 4 * SIZE)
    memory.write(X + 4 * np.arange(SIZE), "f32", Exact.drawn(memory.field, "x", np.linspace(-2, 2, SIZE)))
    memory.write(Y + 4 * np.arange(SIZE), "f32", Exact.constant(memory.field, 0.0))
    memory.write(N + 4 * np.arange(SIZE), "i32", np.zeros(1, np.int64))
    return memory


def test_atomics_add_up_and_give_tickets_in_order() -> None:
    memory = evaluate("%true = arith.constant true\n" + ATOMIC, 6, zeroed())
    assert compare(floats(memory, Y, 1), floats(memory, X, 6).sum(0)).equal.all()
    assert integers(memory, 9) == [18, 0, 0, 0, 3, 6, 9, 12, 15]


def test_maxima_of_floats_by_their_bits_have_residues() -> None:
    body = """%true = arith.constant true
%v = tt.load %px : !tt.ptr<f32>
%bits = tt.bitcast %v : f32 -> i32
%p = tt.bitcast %y : !tt.ptr<f32> -> !tt.ptr<i32>
%positive = arith.cmpf oge, %v, %zero : f32
%old = tt.atomic_rmw max, acq_rel, gpu, %p, %bits, %positive : (!tt.ptr<i32>, i32, i1) -> i32
%negative = arith.cmpf olt, %v, %zero : f32
%older = tt.atomic_rmw umin, acq_rel, gpu, %p, %bits, %negative : (!tt.ptr<i32>, i32, i1) -> i32
tt.return"""
    memory = evaluate(body, SIZE, zeroed())
    assert compare(floats(memory, Y, 1), floats(memory, X, SIZE).map(lambda part: part[-1:])).equal.all()


LOCK = """%true = arith.constant true
%l = scf.while (%k = %c1) : (i32) -> i32 {
  %c = arith.cmpi ne, %k, %c0 : i32
  scf.condition(%c) %k : i32
} do {
^bb0(%k: i32):
  %got = tt.atomic_cas acq_rel, gpu, %n, %c0, %c1 : (!tt.ptr<i32>, i32, i32) -> i32
  scf.yield %got : i32
}
%v = tt.load %px : !tt.ptr<f32>
%old = tt.load %y : !tt.ptr<f32>
%sum = arith.addf %old, %v : f32
tt.store %y, %sum : !tt.ptr<f32>
RELEASE
tt.return"""


def test_locks() -> None:
    release = "%free = tt.atomic_rmw exch, acq_rel, gpu, %n, %c0, %true : (!tt.ptr<i32>, i32, i1) -> i32"
    memory = evaluate(LOCK.replace("RELEASE", release), 5, zeroed())
    assert compare(floats(memory, Y, 1), floats(memory, X, 5).sum(0)).equal.all()
    with pytest.raises(Undecided, match="too long"):
        evaluate(LOCK.replace("RELEASE", ""), 5, zeroed(), deadline=time.thread_time() + 0.2)


def test_what_cannot_be_evaluated_is_named() -> None:
    assembly = """%v = tt.load %px : !tt.ptr<f32>
%w = tt.elementwise_inline_asm "ex2.approx.f32 $0, $1;" """
    assembly += """{constraints = "=f,f", packed_element = 1 : i32, pure = true} %v : f32 -> f32
tt.store %py, %w : !tt.ptr<f32>
tt.return"""
    with pytest.raises(Undecided, match="elementwise_inline_asm"):
        evaluate(assembly, 1)
    with pytest.raises(Undecided, match="outside"):
        evaluate("%f = arith.constant 4096 : i32\n%p = tt.addptr %x, %f : !tt.ptr<f32>, i32\n"
                 "%v = tt.load %p : !tt.ptr<f32>\ntt.store %py, %v : !tt.ptr<f32>\ntt.return", 1)  # fmt: skip


INTEGERS = """%v = tt.load %pn : !tt.ptr<i32>
%big = arith.constant 1812433253 : i32
%m = arith.muli %v, %big : i32
%h = tt.mulhiui %m, %big : i32
%s = arith.shrui %m, %c3 : i32
%t = arith.xori %h, %s : i32
%d = arith.divsi %t, %c3 : i32
%e = arith.remui %t, %c3 : i32
%f = arith.minui %d, %t : i32
%g = arith.addi %f, %e : i32
tt.store %pn, %g : !tt.ptr<i32>
tt.return"""


def test_integers_wrap_as_registers_do() -> None:
    assert integers(evaluate(INTEGERS, 100), 100) == natively(INTEGERS, 100)[1][:100].tolist()
