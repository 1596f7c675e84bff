"""The reader of TTIR text: what it understands, and what hostile text gets."""

import random
import re
import time
from itertools import islice

import pytest
import torch

from all_cases import CASES
from harness import executing
from ttir_executor.allocations import MemoryMap
from ttir_executor.compiled import Checks, CompiledKernel, StepLimit, compile_ttir
from ttir_executor.ttir.ir import TTIRError, Type, UnsupportedTTIR
from ttir_executor.ttir.parser import parse_ttir, parse_type, split_top

KERNEL = """#loc = loc("/home/k.py":3:0)
#loc1 = loc(unknown)
#loc2 = loc("/home/k.py":5:20)
#loc3 = loc("value"(#loc2))
#loc4 = loc(callsite(#loc3 at #loc))
module {
  tt.func public @add(%x: !tt.ptr<f32> {tt.divisibility = 16 : i32} loc("x"(#loc)), %n: i32 loc("n"(#loc))) {
    %c = arith.constant dense<2.000000e+00> : tensor<16xf32> loc(#loc1)
    %p = tt.get_program_id x : i32 loc(#loc2)
    %r = tt.make_range {end = 16 : i32, start = 0 : i32} : tensor<16xi32> loc(#loc2)
    %s = tt.splat %x : !tt.ptr<f32> -> tensor<16x!tt.ptr<f32>> loc(#loc2)
    %a = tt.addptr %s, %r : tensor<16x!tt.ptr<f32>>, tensor<16xi32> loc(#loc4)
    %v = tt.load %a : tensor<16x!tt.ptr<f32>> loc(#loc4)
    %w = arith.mulf %v, %c : tensor<16xf32> loc(#loc3)
    tt.store %a, %w : tensor<16x!tt.ptr<f32>> loc(#loc3)
    tt.return loc(#loc)
  } loc(#loc)
} loc(#loc)
"""


def run(text: str, elements: int = 16) -> torch.Tensor:
    """Run a kernel of one pointer argument (and numbers) on zeros that count up."""
    x = torch.arange(float(elements))
    kernel, memory = compile_ttir(text), MemoryMap()
    memory.add(x.data_ptr(), x.nbytes, initialized=True)
    args = [x.data_ptr() if p.type.elem == "ptr" else 1 for p in kernel.params]
    kernel.run((1, 1, 1), args, memory, step_limit=10_000, time_limit=5.0)
    return x


def test_reads_a_function() -> None:
    function = parse_ttir(KERNEL)
    assert function.name == "add"
    assert [(a.name, a.type) for a in function.args] == [("%x", Type("ptr", None, "f32")), ("%n", Type("i32"))]
    ops = function.body.blocks[0].ops
    assert [op.name for op in ops] == [
        "arith.constant", "tt.get_program_id", "tt.make_range", "tt.splat", "tt.addptr", "tt.load", "arith.mulf",
        "tt.store", "tt.return",
    ]  # fmt: skip
    load = ops[5]
    assert load.results[0].type == Type("f32", (16,))
    assert load.loc == "/home/k.py:5"
    assert [user.name for user in load.results[0].uses] == ["arith.mulf"]
    assert ops[2].attrs["end"] == "16"
    assert torch.equal(run(KERNEL), torch.arange(16.0) * 2)


def test_types() -> None:
    assert parse_type("tensor<4x8x!tt.ptr<bf16>>") == Type("ptr", (4, 8), "bf16")
    assert parse_type("tensor<2x2xf32, #blocked>") == Type("f32", (2, 2))
    assert parse_type("!tt.ptr<i8, 1>") == Type("ptr", None, "i8")
    for bad in ("tensor<f32>", "tensor<4xtensor<4xf32>>"):
        with pytest.raises(TTIRError):
            parse_type(bad)
    for unknown in ("vector<4xf32>", "i7", "tensor<4xf4>", "!llvm.ptr", ""):
        with pytest.raises(UnsupportedTTIR):
            parse_type(unknown)


def test_split_top() -> None:
    assert split_top('a, (b, c), "d, e", f<g, h>') == ["a", "(b, c)", '"d, e"', "f<g, h>"]
    assert split_top("") == []


def test_every_conformance_kernel_is_read_in_milliseconds() -> None:
    texts: list[str] = []
    for name in ("flash_attention_single", "matmul_grouped", "top_k"):
        with executing() as log:
            list(CASES[name].run("cpu"))
        texts += log.ttir
    for text in texts:
        started = time.thread_time()
        parse_ttir(text)
        assert time.thread_time() - started < 1.0


# ---- malformed text


LINES = KERNEL.splitlines()


@pytest.mark.parametrize("keep", range(1, len(LINES) - 2))
def test_truncated_text(keep: int) -> None:
    with pytest.raises((TTIRError, UnsupportedTTIR)):
        parse_ttir("\n".join(LINES[:keep]))


BROKEN = {
    "a value used before it is defined": ("%v, %c", "%nowhere, %c"),
    "sides of different shapes": ("dense<2.000000e+00> : tensor<16xf32>", "dense<2.0> : tensor<32xf32>"),
    "a range of another size": ("end = 16", "end = 4096"),
    "a size that is no power of two": ("tensor<16x!tt.ptr<f32>>", "tensor<17x!tt.ptr<f32>>"),
    "a block that is too large": ("tensor<16x!tt.ptr<f32>>", "tensor<1073741824x!tt.ptr<f32>>"),
    "an axis that is no axis": ("tt.get_program_id x", "tt.get_program_id w"),
    "an operation of no dialect": ("arith.mulf", "mulf"),
    "a load of no pointer": ("tt.load %a : tensor<16x!tt.ptr<f32>>", "tt.load %r : tensor<16xi32>"),
    "a store of no pointer": ("tt.store %a, %w : tensor<16x!tt.ptr<f32>>", "tt.store %c, %w : tensor<16xf32>"),
    "integers added as floats": ("arith.mulf %v, %c : tensor<16xf32>", "arith.addf %r, %r : tensor<16xi32>"),
    "a constant that is no number": ("dense<2.000000e+00>", "dense<two>"),
    "a constant list of another length": ("dense<2.000000e+00>", "dense<[1.0, 2.0]>"),
    "another element type than stored": ("tt.store %a, %w", "tt.store %a, %r"),
}  # fmt: skip


@pytest.mark.parametrize("what", BROKEN)
def test_contradictory_text(what: str) -> None:
    old, new = BROKEN[what]
    assert old in KERNEL
    with pytest.raises((TTIRError, UnsupportedTTIR)):
        run(KERNEL.replace(old, new))


def test_unknown_operations_are_named_with_their_line() -> None:
    with pytest.raises(UnsupportedTTIR, match=r"arith\.frobnicate.*k\.py:5"):
        run(KERNEL.replace("arith.mulf", "arith.frobnicate"))


SHAPE_LIES = {
    "broadcast": "%t = tt.broadcast %v : tensor<16xf32> -> tensor<4096xf32>",
    "reshape": "%t = tt.reshape %v : tensor<16xf32> -> tensor<64x64xf32>",
    "expand": "%t = tt.expand_dims %v {axis = 0 : i32} : tensor<16xf32> -> tensor<64x16xf32>",
    "trans": "%t = tt.trans %v {order = array<i32: 1, 0>} : tensor<16xf32> -> tensor<16xf32>",
    "join": "%t = tt.join %v, %v : tensor<16xf32> -> tensor<64x2xf32>",
    "cat": "%t = tt.cat %v, %v : tensor<16xf32> -> tensor<16xf32>",
    "histogram": "%t = tt.histogram %r : tensor<16xi32> -> tensor<4x4xi32>",
    "gather": "%t = tt.gather %v[%r] {axis = 3 : i32} : (tensor<16xf32>, tensor<16xi32>) -> tensor<16xf32>",
    "dot": "%t = tt.dot %v, %v, %v : tensor<16xf32> * tensor<16xf32> -> tensor<16xf32>",
    "reduce": '%t = "tt.reduce"(%v) <{axis = 0 : i32}> ({\n^bb0(%i: f32, %j: f32):\n%k = arith.addf %i, %j : f32\n'
    "tt.reduce.return %k : f32\n}) : (tensor<16xf32>) -> tensor<8xf32>",
    "scan": '%t = "tt.scan"(%v) <{axis = 0 : i32, reverse = false}> ({\n^bb0(%i: f32, %j: f32):\n'
    "%k = arith.addf %i, %j : f32\ntt.scan.return %k : f32\n}) : (tensor<16xf32>) -> tensor<64xf32>",
    "for": "%t = scf.for %q = %p to %p step %p iter_args(%u = %v) -> (tensor<64xf32>) : i32 {\n"
    "scf.yield %u : tensor<64xf32>\n}",
    "if": "%t = scf.if %b -> (tensor<64xf32>) {\nscf.yield %v : tensor<16xf32>\n} else {\n"
    "scf.yield %v : tensor<16xf32>\n}",
    "while": "%t = scf.while (%u = %v) : (tensor<64xf32>) -> tensor<64xf32> {\n"
    "scf.condition(%b) %u : tensor<64xf32>\n} do {\n^bb0(%z: tensor<64xf32>):\nscf.yield %z : tensor<64xf32>\n}",
}  # fmt: skip


@pytest.mark.parametrize("what", SHAPE_LIES)
def test_shapes_that_lie_never_reach_native_code(what: str) -> None:
    """Each of these would read or write scratch memory out of bounds."""
    extra = "%b = arith.constant true\n" + SHAPE_LIES[what] + "\n"
    text = KERNEL.replace("    %w = arith", f"{extra}    %w = arith")
    with pytest.raises((TTIRError, UnsupportedTTIR)):
        run(text)


def test_native_code_cannot_be_injected() -> None:
    for old, new in (
        ("tt.get_program_id x", "tt.get_program_id x\nret_void"),
        ("dense<2.000000e+00>", "dense<0x41414141> to i32\n  ret void\n ;"),
        ("%v", "%v1 = call void @exit(i32 0)"),
    ):
        with pytest.raises((TTIRError, UnsupportedTTIR)):
            run(KERNEL.replace(old, new))
    named = run(KERNEL.replace("@add", '@"add() { ret void }"'))
    assert torch.equal(named, torch.arange(16.0) * 2), "a name is only a name"
    exotic = KERNEL.replace("%x", "%x.y$z-w").replace("arith.mulf %v, %c", "arith.mulf %v, %c {fastmath = <%evil>}")
    with pytest.raises((TTIRError, UnsupportedTTIR)):
        run(exotic)


def test_predicates_are_checked_by_the_compiler() -> None:
    text = KERNEL.replace("    %w = arith", "    %t = arith.cmpi ret, %r, %r : tensor<16xi32>\n%y = arith.extui %t : "
                          "tensor<16xi1> to tensor<16xi32>\n    %w = arith")  # fmt: skip
    text = text.replace("tt.store %a, %w", "tt.store %a, %w").replace("%v, %c : ", "%v, %f : ")
    text = text.replace("    %w = arith", "    %f = arith.sitofp %y : tensor<16xi32> to tensor<16xf32>\n    %w = arith")
    with pytest.raises(TTIRError, match="native code"):
        run(text)


# ---- resources


def test_deep_nesting() -> None:
    opening = "%b = arith.constant true\n" + "scf.if %b {\n" * 5000 + "}\n" * 5000
    with pytest.raises(TTIRError, match="deep"):
        parse_ttir(KERNEL.replace("    %w = arith", opening + "    %w = arith"))


def test_circular_and_deep_locations() -> None:
    chain = "".join(f"#loc{k} = loc(callsite(#loc{k + 1} at #loc{k + 1}))\n" for k in range(10, 5000))
    text = KERNEL.replace("module {", "#loc6 = loc(fused[#loc7])\n#loc7 = loc(fused[#loc6])\n" + chain + "module {")
    text = text.replace("loc(#loc3)", "loc(#loc6)").replace("tt.return loc(#loc)", "tt.return loc(#loc10)")
    try:
        function = parse_ttir(text)
    except TTIRError:
        return
    assert function.body.blocks[0].ops[-2].loc == ""


def test_too_much_text() -> None:
    with pytest.raises(TTIRError, match="limit"):
        parse_ttir("// " + "x" * (9 << 20))
    body = "    %w0 = arith.addf %v, %v : tensor<16xf32>\n" * 60_000
    with pytest.raises(TTIRError, match="limit"):
        parse_ttir(KERNEL.replace("    %w = arith", body + "    %w = arith"))


@pytest.mark.parametrize(
    "line",
    [
        "%t = scf.for %a = %b to " + "%c " * 20_000,
        "%t = scf.while (" + "(" * 20_000,
        "%t = scf.while " + "() : " * 10_000,
        "%t:" + "9" * 300 + " = arith.addf %v, %v : tensor<16xf32>",
        "%t = arith.constant dense<" + "[" * 20_000 + "> : tensor<16xf32>",
        "%t = arith.constant " + "1" * 5000 + " : i32",
        "scf.if " + "%b -> (" * 10_000,
        '%t = "tt.reduce"(' + "(" * 20_000,
    ],
    ids=["for", "while", "while2", "results", "constant", "digits", "if", "reduce"],
)
def test_long_lines_cost_little(line: str) -> None:
    started = time.thread_time()
    with pytest.raises((TTIRError, UnsupportedTTIR)):
        run(KERNEL.replace("    %w = arith", line + "\n    %w = arith"))
    assert time.thread_time() - started < 5


def test_expressions_that_would_double_at_every_step() -> None:
    """v + trans(v), over and over: recomputing it at every use would take 2^60 instructions."""
    square = []
    for name, ty, start, add in (("m", "f32", "%v", "arith.addf"), ("i", "i32", "%r", "arith.addi")):
        flat, matrix = f"tensor<16x{ty}>", f"tensor<4x4x{ty}>"
        square.append(f"%{name}0 = tt.reshape {start} : {flat} -> {matrix}")
        for k in range(60):
            order = "{order = array<i32: 1, 0>}"
            square.append(f"%{name}t{k} = tt.trans %{name}{k} {order} : {matrix} -> {matrix}")
            square.append(f"%{name}{k + 1} = {add} %{name}{k}, %{name}t{k} : {matrix}")
    square += [
        "%f = arith.sitofp %i60 : tensor<4x4xi32> to tensor<4x4xf32>",
        "%g = arith.addf %f, %m60 : tensor<4x4xf32>",
        "%h = tt.reshape %g : tensor<4x4xf32> -> tensor<16xf32>",
    ]
    text = KERNEL.replace("    %w = arith.mulf %v, %c", "\n".join(square) + "\n    %w = arith.mulf %h, %c")
    started = time.thread_time()
    got = run(text)
    assert time.thread_time() - started < 10
    matrix = torch.arange(16.0).view(4, 4).double()
    for _ in range(60):
        matrix = matrix + matrix.t()
    integers = torch.arange(16, dtype=torch.int32).view(4, 4)
    for _ in range(60):
        integers = integers + integers.t()
    assert torch.allclose(got.double(), ((matrix + integers) * 2).flatten(), rtol=1e-5)


def test_long_chains() -> None:
    """A loop unrolled two thousand times nests two thousand operations."""
    chain = [f"%w{k + 1} = arith.addf %{'v' if k == 0 else f'w{k}'}, %c : tensor<16xf32>" for k in range(2000)]
    text = KERNEL.replace("    %w = arith.mulf %v, %c", "\n".join(chain) + "\n    %w = arith.mulf %w2000, %c")
    assert torch.equal(run(text), (torch.arange(16.0) + 4000) * 2)


# ---- mutated kernels: nothing crashes the process, nothing outside the tensors changes


def _mutate(text: str, rng: random.Random) -> str:
    lines = text.splitlines()
    for _ in range(rng.randint(1, 3)):
        k = rng.randrange(len(lines))
        kind = rng.randrange(6)
        if kind == 0:
            del lines[k]
        elif kind == 1:
            lines.insert(k, lines[rng.randrange(len(lines))])
        elif kind == 2:
            numbers = list(re.finditer(r"\d+", lines[k]))
            if numbers:
                m = rng.choice(numbers)
                other = str(rng.choice([0, 1, 2, 3, 16, 64, 1 << 20, 1 << 31, 1 << 40, (1 << 64) - 1]))
                lines[k] = lines[k][: m.start()] + other + lines[k][m.end() :]
        elif kind == 3:
            names = re.findall(r"%[A-Za-z0-9_]+", text)
            found = list(re.finditer(r"%[A-Za-z0-9_]+", lines[k]))
            if found:
                m = rng.choice(found)
                lines[k] = lines[k][: m.start()] + rng.choice(names) + lines[k][m.end() :]
        elif kind == 4:
            other = rng.choice(["f32", "f16", "bf16", "i32", "i64", "i1", "i8", "f64", "!tt.ptr<f32>"])
            lines[k] = re.sub(r"\b(f32|f16|i32|i64|i1)\b", other, lines[k], count=1)
        else:
            j = rng.randrange(len(lines))
            lines[k], lines[j] = lines[j], lines[k]
    return "\n".join(lines) + "\n"


def _run_mutant(kernel: CompiledKernel, tensors: dict[int, torch.Tensor], checks: Checks) -> None:
    memory = MemoryMap()
    for tensor in tensors.values():
        memory.add(tensor.data_ptr(), tensor.nbytes, initialized=True)
    args: list[int | float] = []
    pool = list(tensors.values())
    for k, param in enumerate(kernel.params):
        args.append(
            pool[k % len(pool)].data_ptr() if param.type.elem == "ptr" else (0.5 if param.type.is_float else 20)
        )
    kernel.run((2, 1, 1), args, memory, checks=checks, step_limit=20_000, time_limit=2.0)


@pytest.mark.parametrize("case", ["matmul_types", "flash_attention_single", "while_on_blocks", "early_return", "scans"])
def test_mutated_kernels_do_no_harm(case: str) -> None:
    with executing() as log:
        list(islice(CASES[case].run("cpu"), 12))
    rng = random.Random(0)
    guard = torch.full((1 << 14,), 7, dtype=torch.uint8)
    outcomes = {"ran": 0, "refused": 0}
    started = time.thread_time()
    for round_ in range(30):
        if time.thread_time() - started > 2:
            break
        text = _mutate(rng.choice(log.ttir), rng)
        # tensors lie between stretches that must not change
        arena = guard.clone()
        tensors = {k: arena[4096 * k + 1024 : 4096 * k + 3072] for k in range(4)}
        try:
            _run_mutant(compile_ttir(text), tensors, Checks(race=bool(round_ % 2)))
            outcomes["ran"] += 1
        except (TTIRError, UnsupportedTTIR, StepLimit):
            outcomes["refused"] += 1
        for k in range(4):
            assert (arena[4096 * k : 4096 * k + 1024] == 7).all()
            assert (arena[4096 * k + 3072 : 4096 * (k + 1)] == 7).all()
    assert min(outcomes.values()) > 0, outcomes
