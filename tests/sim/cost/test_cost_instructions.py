"""Library functions by what compilers make of them (``benchmarks/library_instructions.py``)."""

import re
from collections import Counter
from dataclasses import replace

import pytest

from drkernel.sim.cost.instructions import instructions
from drkernel.sim.cost.kernel_profile import BlockProfile, Dot, KernelProfile, lane_instructions, profile_of
from drkernel.sim.cost.launch_time import block_lanes, block_seconds, dot_rate
from drkernel.sim.cost.layouts import fast_side, lanes_of, layouts_of, step
from drkernel.sim.cost.pressure import BlockPressure, register_pressure
from drkernel.sim.cost.roofline import unit_rate, vector_seconds
from drkernel.sim.spec import get_spec
from ttir_executor.lower.plan import walk
from ttir_executor.ttir.parser import parse_ttir

KERNEL = """
module {{
  tt.func public @kernel(%p: !tt.ptr<f32> {{tt.divisibility = 16 : i32}}, %n: i32) {{
    %at = tt.make_range {{end = 128 : i32, start = 0 : i32}} : tensor<128xi32>
    %all = tt.splat %p : !tt.ptr<f32> -> tensor<128x!tt.ptr<f32>>
    %where = tt.addptr %all, %at : tensor<128x!tt.ptr<f32>>, tensor<128xi32>
    %x = tt.load %where : tensor<128x!tt.ptr<f32>>
    %cst = {power}
    %y = tt.extern_elementwise {operands} {{libname = "", libpath = "", pure = true, symbol = "{symbol}"}} : {types}
    tt.return
  }}
}}
"""


def of(symbol: str, result: str = "f32", power: str | None = None) -> float:
    operands, given = ("%x, %cst", "tensor<128xf32>, tensor<128xi32>") if power else ("%x", "tensor<128xf32>")
    text = KERNEL.format(
        symbol=symbol, operands=operands, types=f"({given}) -> tensor<128x{result}>",
        power=power or "arith.constant dense<0> : tensor<128xi32>",
    )  # fmt: skip
    (op,) = [op for op in walk(parse_ttir(text).body) if op.name == "tt.extern_elementwise"]
    return sum(instructions(op).values())


@pytest.mark.parametrize(("power", "compiled"), [(2, 2), (3, 3), (10, 5)])
def test_a_known_whole_power_is_a_few_products(power: int, compiled: int) -> None:
    assert of("__nv_powif", power=f"arith.constant dense<{power}> : tensor<128xi32>") == compiled
    known_down = of("__nv_powif", power=f"arith.constant dense<{-power}> : tensor<128xi32>")
    assert compiled < known_down < of("__nv_powif", power="tt.splat %n : i32 -> tensor<128xi32>") < of("__nv_powf")


def test_a_rounding_to_whole_numbers_is_a_conversion() -> None:
    assert of("__nv_llrintf", "i64") == 2 and of("__nv_float2int_rn", "i32") == 1
    assert of("__nv_float_as_int", "i32") == 0


@pytest.mark.parametrize(
    ("name", "source", "target", "special"),
    [("uitofp", "i8", "bf16", 1), ("sitofp", "i8", "f16", 1), ("sitofp", "i8", "bf16", 0), ("uitofp", "i32", "bf16", 1),
     ("sitofp", "i32", "f32", 0), ("fptosi", "f32", "i32", 1), ("fptosi", "f16", "i8", 1)],
)  # fmt: skip
def test_the_unit_of_special_functions_converts_numbers(name: str, source: str, target: str, special: int) -> None:
    """``I2F`` and ``F2I`` in machine code (ptxas 12.8, sm_90), but where ``I2FP`` or arithmetic does it."""
    text = f"""module {{
  tt.func public @kernel(%x: {source}) {{
    %all = tt.splat %x : {source} -> tensor<128x{source}>
    %y = arith.{name} %all : tensor<128x{source}> to tensor<128x{target}>
    tt.return
  }}
}}"""
    (op,) = [op for op in walk(parse_ttir(text).body) if op.name == f"arith.{name}"]
    assert instructions(op).get("sfu", 0.0) == special


SCAN = """
module {{
  tt.func public @kernel(%p: !tt.ptr<f32> {{tt.divisibility = 16 : i32}}, %n: i32) {{
    %at = tt.make_range {{end = {length} : i32, start = 0 : i32}} : tensor<{length}xi32>
    %last = tt.splat %n : i32 -> tensor<{length}xi32>
    %down = arith.subi %last, %at : tensor<{length}xi32>
    %all = tt.splat %p : !tt.ptr<f32> -> tensor<{length}x!tt.ptr<f32>>
    %where = tt.addptr %all, %{at} : tensor<{length}x!tt.ptr<f32>>, tensor<{length}xi32>
    %x = tt.load %where : tensor<{length}x!tt.ptr<f32>>
    %y = "tt.scan"(%x) <{{axis = 0 : i32, reverse = false}}> ({{
    ^bb0(%a: f32, %b: f32):
      %c = arith.addf %a, %b : f32
      tt.scan.return %c : f32
    }}) : (tensor<{length}xf32>) -> tensor<{length}xf32>
    tt.store %where, %y : tensor<{length}x!tt.ptr<f32>>
    tt.return
  }}
}}
"""


@pytest.mark.parametrize(
    ("length", "warps", "at", "compiled"),
    [(256, 4, "at", 45), (1024, 4, "at", 85), (4096, 4, "at", 292), (2048, 8, "at", 107), (4096, 16, "at", 154),
     (4096, 4, "down", 882), (4096, 16, "down", 462)],
)  # fmt: skip
def test_a_scan_goes_through_the_partial_results_of_all_runs_and_warps(
    length: int, warps: int, at: str, compiled: int
) -> None:
    """``compiled``: what the PTX for sm_90 has a thread, beyond that of a copy (Triton 3.7). From the end of a row each
    thread holds elements one by one, so that there are four times as many runs."""
    text = SCAN.format(length=length, at=at)
    copy = re.sub(r'    %y = "tt.scan".*?tensor<\d+xf32>\n', "", text, flags=re.DOTALL).replace("%y", "%x")
    spec, (scan, plain) = get_spec("h100"), (profile_of(parse_ttir(each)).blocks[0] for each in (text, copy))
    counted, before = (sum(block_lanes(each, 32 * warps, spec).values()) / 32 / warps for each in (scan, plain))
    assert 0.55 * compiled < counted - before <= compiled


def test_a_scan_that_a_warp_does_alone_needs_no_barrier() -> None:
    small, large = (profile_of(parse_ttir(SCAN.format(length=length, at="at"))).blocks[0] for length in (32, 1024))
    assert small.reductions < large.reductions == 1


INDEX = """
module {{
  tt.func public @kernel(%p: !tt.ptr<f32> {{tt.divisibility = 16 : i32}}, %q: !tt.ptr<i64>) {{
    %block = arith.constant 512 : i64
    %by = arith.constant dense<{by}> : tensor<512xi64>
    %pid = tt.get_program_id x : i32
    %wide = arith.extsi %pid : i32 to i64
    %first = arith.muli %wide, %block : i64
    %firsts = tt.splat %first : i64 -> tensor<512xi64>
    %range = tt.make_range {{end = 512 : i32, start = 0 : i32}} : tensor<512xi32>
    %places = arith.extsi %range : tensor<512xi32> to tensor<512xi64>
    %all = tt.splat %q : !tt.ptr<i64> -> tensor<512x!tt.ptr<i64>>
    %there = tt.addptr %all, %places : tensor<512x!tt.ptr<i64>>, tensor<512xi64>
    %loaded = tt.load %there : tensor<512x!tt.ptr<i64>>
    %index = arith.addi %firsts, %places : tensor<512xi64>
    %quotient = arith.divsi %{of}, %by : tensor<512xi64>
    %rest = arith.remsi %{of}, %by : tensor<512xi64>
    %row = tt.splat %p : !tt.ptr<f32> -> tensor<512x!tt.ptr<f32>>
    %at = tt.addptr %row, %rest : tensor<512x!tt.ptr<f32>>, tensor<512xi64>
    %x = tt.load %at : tensor<512x!tt.ptr<f32>>
    tt.store %at, %x : tensor<512x!tt.ptr<f32>>
    tt.return
  }}
}}
"""


@pytest.mark.parametrize(
    ("of", "by", "quotient", "rest"),
    [("index", 62, 5.5, 3.5), ("index", 64, 1, 1), ("loaded", 186, 15, 3.8), ("loaded", 64, 5, 5.8)],
)
def test_a_remainder_takes_the_quotient_of_the_same_numbers(of: str, by: int, quotient: float, rest: float) -> None:
    """``quotient``, ``rest``: instructions beyond a copy's in machine code for sm_90 (ptxas 12.8), a remainder beside
    its quotient."""
    ops = {op.name: op for op in walk(parse_ttir(INDEX.format(of=of, by=by)).body)}
    assert sum(instructions(ops["arith.divsi"]).values()) == quotient
    assert sum(instructions(ops["arith.remsi"]).values()) == pytest.approx(rest, abs=2.0)


@pytest.mark.parametrize(("by", "accesses"), [(64, 128), (62, 256), (63, 512)])
def test_rows_of_odd_lengths_are_not_loaded_by_vectors(by: int, accesses: int) -> None:
    """``accesses``: of a program, 512 elements in rows of ``by``: 4, 2 and 1 element each, as Triton divides them."""
    function = parse_ttir(INDEX.format(of="index", by=by))
    (load,) = [op for op in walk(function.body) if op.name == "tt.load" and op.results[0].type.elem == "f32"]
    lanes = lane_instructions(load, layouts_of(function))
    assert sum(numel * count for _, numel, count, _ in lanes) / 3 == accesses


IMAGE = """
module {{
  tt.func public @image(%x: !tt.ptr<bf16> {{tt.divisibility = 16 : i32}}, %height: i32, %width: i32{said}) {{
    %rows = tt.make_range {{end = 64 : i32, start = 0 : i32}} : tensor<64xi32>
    %heights = tt.splat %height : i32 -> tensor<64xi32>
    %inside = arith.cmpi slt, %rows, %heights : tensor<64xi32>
    %each = tt.expand_dims %inside {{axis = 1 : i32}} : tensor<64xi1> -> tensor<64x1xi1>
    %mask = tt.broadcast %each : tensor<64x1xi1> -> tensor<64x256xi1>
    %places = tt.make_range {{end = 256 : i32, start = 0 : i32}} : tensor<256xi32>
    %by = {by} tensor<256xi32>
    %line = arith.divsi %places, %by : tensor<256xi32>
    %along = arith.remsi %places, %by : tensor<256xi32>
    %widths = tt.splat %width : i32 -> tensor<256xi32>
    %start = arith.muli %line, %widths : tensor<256xi32>
    %place = arith.addi %start, %along : tensor<256xi32>
    %flat = tt.expand_dims %place {{axis = 0 : i32}} : tensor<256xi32> -> tensor<1x256xi32>
    %tile = tt.broadcast %flat : tensor<1x256xi32> -> tensor<64x256xi32>
    %base = tt.splat %x : !tt.ptr<bf16> -> tensor<64x256x!tt.ptr<bf16>>
    %at = tt.addptr %base, %tile : tensor<64x256x!tt.ptr<bf16>>, tensor<64x256xi32>
    %value = tt.load %at, %mask : tensor<64x256x!tt.ptr<bf16>>
    tt.store %at, %value, %mask : tensor<64x256x!tt.ptr<bf16>>
    tt.return
  }}
}}
"""


@pytest.mark.parametrize(
    ("by", "multiple", "side", "elements"),
    [
        ("tt.splat %width : i32 ->", True, 1, 8),
        ("tt.splat %width : i32 ->", False, 1, 1),
        ("arith.constant dense<64> :", True, 1, 8),
        ("arith.constant dense<62> :", True, None, 1),
    ],
)
def test_lines_of_an_image_are_loaded_by_vectors_under_a_mask_of_rows(
    by: str, multiple: bool, side: int | None, elements: int
) -> None:
    """``elements``: side by side, as Triton 3.7 loads them where it is told that the width is a multiple of 16."""
    function = parse_ttir(IMAGE.format(by=by, said=" {tt.divisibility = 16 : i32}" if multiple else ""))
    (load,) = [op for op in walk(function.body) if op.name == "tt.load"]
    assert fast_side(load.operands[0]) == side
    if side is not None:
        ((unit, numel, count, _), *_) = lane_instructions(load, layouts_of(function))
        assert (unit, numel, count) == ("issue", 64 * 256, 1 / elements)


@pytest.mark.parametrize(("by", "each"), [(64, 0.25), (62, 0.5), (63, 1.0)])
def test_addresses_are_made_for_each_access(by: int, each: float) -> None:
    function = parse_ttir(INDEX.format(of="index", by=by))
    (at,) = [op for op in walk(function.body) if op.name == "tt.addptr" and op.results[0].type.pointee == "f32"]
    ((unit, numel, count, _),) = lane_instructions(at, layouts_of(function))
    assert (unit, numel, count) == ("int", 512, 2 * each)


def test_numbers_that_are_not_known_are_divided_by_32_bits_where_these_hold_them() -> None:
    """The way that Triton's code for sm_90 takes for most places: 26 instructions (ptxas 12.8), libdevice's 80 more."""
    text = INDEX.format(of="loaded", by=3).replace("arith.divsi %loaded, %by", "arith.divsi %loaded, %loaded")
    ops = {op.name: op for op in walk(parse_ttir(text).body)}
    assert 26 <= sum(instructions(ops["arith.divsi"]).values()) < 40


GATHERS = """
module {
  tt.func public @kernel(%p: !tt.ptr<f32> {tt.divisibility = 16 : i32}, %n: i32, %rounds: i32) {
    %zero = arith.constant 0 : i32
    %one = arith.constant 1 : i32
    %many = tt.splat %n : i32 -> tensor<32xi32>
    %k = tt.make_range {end = 32 : i32, start = 0 : i32} : tensor<32xi32>
    %wide = tt.splat %p : !tt.ptr<f32> -> tensor<64x32x!tt.ptr<f32>>
    %tall = tt.splat %p : !tt.ptr<f32> -> tensor<32x64x!tt.ptr<f32>>
    scf.for %i = %zero to %rounds step %one : i32 {
      %same = arith.muli %k, %many : tensor<32xi32>
      %all = tt.splat %i : i32 -> tensor<32xi32>
      %here = arith.addi %same, %all : tensor<32xi32>
      %channel = arith.divsi %here, %many : tensor<32xi32>
      %row = tt.expand_dims %channel {axis = 0 : i32} : tensor<32xi32> -> tensor<1x32xi32>
      %rows = tt.broadcast %row : tensor<1x32xi32> -> tensor<64x32xi32>
      %a = tt.addptr %wide, %rows : tensor<64x32x!tt.ptr<f32>>, tensor<64x32xi32>
      %x = tt.load %a : tensor<64x32x!tt.ptr<f32>>
      tt.store %a, %x : tensor<64x32x!tt.ptr<f32>>
      %column = tt.expand_dims %channel {axis = 1 : i32} : tensor<32xi32> -> tensor<32x1xi32>
      %columns = tt.broadcast %column : tensor<32x1xi32> -> tensor<32x64xi32>
      %b = tt.addptr %tall, %columns : tensor<32x64x!tt.ptr<f32>>, tensor<32x64xi32>
      %y = tt.load %b : tensor<32x64x!tt.ptr<f32>>
      tt.store %b, %y : tensor<32x64x!tt.ptr<f32>>
    }
    tt.return
  }
}
"""


def test_what_lies_along_two_tiles_is_made_for_each() -> None:
    """A convolution's channels, along the columns of its inputs and the rows of its weights: eight rows a thread."""
    function = parse_ttir(GATHERS)
    (division,) = [op for op in walk(function.body) if op.name == "arith.divsi"]
    tiles = [tile for *_, tile in lane_instructions(division, layouts_of(function))]
    assert sorted((tile.shape, tile.side) for tile in tiles if tile is not None) == [((32, 64), 0), ((64, 32), 1)]


def test_what_no_round_of_a_loop_changes_is_done_before_it() -> None:
    before, loop = profile_of(parse_ttir(GATHERS)).blocks
    assert [numel for unit, numel, _, _ in before.lanes if unit == "imad"] == [32, 32]
    assert 32 not in [numel for unit, numel, _, _ in loop.lanes if unit == "imad"]
    assert any(numel == 32 for unit, numel, _, _ in loop.lanes if unit == "int")


SUMMED = """
module {{
  tt.func public @kernel(%p: !tt.ptr<f32> {{tt.divisibility = 16 : i32}}, %q: !tt.ptr<f32>, %rounds: i32) {{
    %zero = arith.constant 0 : i32
    %one = arith.constant 1 : i32
    %start = arith.constant dense<0.0> : tensor<512xf32>
    %at = tt.make_range {{end = 512 : i32, start = 0 : i32}} : tensor<512xi32>
    %ps = tt.splat %p : !tt.ptr<f32> -> tensor<512x!tt.ptr<f32>>
    %qs = tt.splat %q : !tt.ptr<f32> -> tensor<512x!tt.ptr<f32>>
    %a = tt.addptr %ps, %at : tensor<512x!tt.ptr<f32>>, tensor<512xi32>
    %b = tt.addptr %qs, %at : tensor<512x!tt.ptr<f32>>, tensor<512xi32>
    %sum = scf.for %i = %zero to %rounds step %one iter_args(%total = %start) -> (tensor<512xf32>) : i32 {{
      {loads}
      %product = arith.mulf %x, %y : tensor<512xf32>
      %next = arith.addf %total, %product : tensor<512xf32>
      scf.yield %next : tensor<512xf32>
    }}
    tt.store %a, %sum : tensor<512x!tt.ptr<f32>>
    tt.return
  }}
}}
"""


def test_what_waits_for_another_load_is_held() -> None:
    """A matrix times a vector that is loaded before or after it: all of 8 to 32 vectors under way (ptxas 12.8, sm_80
    and 90)."""
    x, y = (f"%{name} = tt.load %{at} : tensor<512x!tt.ptr<f32>>" for name, at in (("x", "a"), ("y", "b")))
    alone = profile_of(parse_ttir(SUMMED.format(loads=f"{x}\n%y = arith.constant dense<2.0> : tensor<512xf32>")))
    both = profile_of(parse_ttir(SUMMED.format(loads=f"{x}\n{y}")))
    (only,), (first, last) = alone.blocks[1].loads, both.blocks[1].loads
    assert first.crowding == last.crowding == 1.0 < only.crowding


PRODUCT = """
module {{
  tt.func public @kernel(%p: !tt.ptr<f32> {{tt.divisibility = 16 : i32}}, %n: i32, %rounds: i32) {{
    %zero = arith.constant 0 : i32
    %one = arith.constant 1 : i32
    %empty = arith.constant dense<0.0> : tensor<64x64xf32>
    %k = tt.make_range {{end = 32 : i32, start = 0 : i32}} : tensor<32xi32>
    %m = tt.make_range {{end = 64 : i32, start = 0 : i32}} : tensor<64xi32>
    %many = tt.splat %n : i32 -> tensor<32xi32>
    %wide = tt.splat %p : !tt.ptr<f32> -> tensor<64x32x!tt.ptr<f32>>
    %tall = tt.splat %p : !tt.ptr<f32> -> tensor<32x64x!tt.ptr<f32>>
    %down = tt.expand_dims %m {{axis = 1 : i32}} : tensor<64xi32> -> tensor<64x1xi32>
    %downs = tt.broadcast %down : tensor<64x1xi32> -> tensor<64x32xi32>
    %along = tt.expand_dims %m {{axis = 0 : i32}} : tensor<64xi32> -> tensor<1x64xi32>
    %alongs = tt.broadcast %along : tensor<1x64xi32> -> tensor<32x64xi32>
    %end = scf.for %i = %zero to %rounds step %one iter_args(%sum = %empty) -> (tensor<64x64xf32>) : i32 {{
      %all = tt.splat %i : i32 -> tensor<32xi32>
      %here = arith.addi %k, %all : tensor<32xi32>
      %channel = {channel} %here, %many : tensor<32xi32>
      %row = tt.expand_dims %channel {{axis = 0 : i32}} : tensor<32xi32> -> tensor<1x32xi32>
      %rows = tt.broadcast %row : tensor<1x32xi32> -> tensor<64x32xi32>
      %left = arith.muli %downs, %rows : tensor<64x32xi32>
      %few = arith.constant dense<{few}> : tensor<64x32xi32>
      %by = arith.muli %downs, %few : tensor<64x32xi32>
      %near = arith.addi %by, %rows : tensor<64x32xi32>
      %a = tt.addptr %wide, {left} : tensor<64x32x!tt.ptr<f32>>, tensor<64x32xi32>
      %x = tt.load %a : tensor<64x32x!tt.ptr<f32>>
      %column = tt.expand_dims %channel {{axis = 1 : i32}} : tensor<32xi32> -> tensor<32x1xi32>
      %columns = tt.broadcast %column : tensor<32x1xi32> -> tensor<32x64xi32>
      %right = arith.addi %columns, %alongs : tensor<32x64xi32>
      %b = tt.addptr %tall, %right : tensor<32x64x!tt.ptr<f32>>, tensor<32x64xi32>
      %y = tt.load %b : tensor<32x64x!tt.ptr<f32>>
      %next = tt.dot %x, %y, %sum, inputPrecision = tf32 : tensor<64x32xf32> * tensor<32x64xf32> -> tensor<64x64xf32>
      scf.yield %next : tensor<64x64xf32>
    }}
    tt.return
  }}
}}
"""
GATHERED = parse_ttir(PRODUCT.format(channel="arith.divsi", left="%left", few=1))
BESIDE = parse_ttir(PRODUCT.format(channel="arith.addi", left="%rows", few=1))
H100 = get_spec("h100")


def test_lanes_lie_along_the_first_side_of_a_gathered_tile() -> None:
    """So that each of 128 threads divides for 16 of the 32 columns, and for none of those that lie beside each other
    (Triton 3.6.0, sm_90a: the layout of the tile is [32, 1] lanes and [2, 2] warps)."""
    (division,) = [op for op in walk(GATHERED.body) if op.name == "arith.divsi"]
    held = {tile.shape: lanes_of(32, tile, 128) / 128 for *_, tile in lane_instructions(division, layouts_of(GATHERED))}
    assert held[64, 32] == 16


def test_a_gathered_element_takes_registers_for_its_address_and_mask() -> None:
    """16 of them beside 32 sums take 128 registers (ptxas, sm_90a), 16 that lie beside each other nothing."""
    gathered, beside = (register_pressure(of, 128).registers for of in (GATHERED, BESIDE))
    assert beside < 64 < 110 <= gathered <= 140


def test_a_round_makes_gathered_addresses_before_it_loads_ahead_and_first_rounds_make_theirs_before_the_loop() -> None:
    gathered, beside = profile_of(GATHERED), profile_of(BESIDE)
    assert sum(count for _, _, count, _ in gathered.blocks[1].ahead) > sum(n for *_, n, _ in beside.blocks[1].ahead) > 0
    start, each = zip(*(block_seconds(gathered, 4, stages, H100, {}) for stages in (2, 3, 4)), strict=True)
    assert start[0] < start[1] < start[2] and start[2] - start[1] == pytest.approx(start[1] - start[0])
    assert each[0] > each[1] >= each[2]
    latency = block_seconds(beside, 4, 2, H100, {})[1]
    assert each[0] > latency + (start[1] - start[0]) / 2
    plain = [block_seconds(beside, 4, stages, H100, {})[0] for stages in (2, 3, 4)]
    assert plain[2] - plain[1] == pytest.approx(plain[1] - plain[0]) and 0 < plain[1] - plain[0] < start[1] - start[0]


STREAM = """
module {{
  tt.func public @kernel(%p: !tt.ptr<f32> {{tt.divisibility = 16 : i32}}, %q: !tt.ptr<f32>) {{
    %at = tt.make_range {{end = {n} : i32, start = 0 : i32}} : tensor<{n}xi32>
    %ps = tt.splat %p : !tt.ptr<f32> -> tensor<{n}x!tt.ptr<f32>>
    %qs = tt.splat %q : !tt.ptr<f32> -> tensor<{n}x!tt.ptr<f32>>
    %a = tt.addptr %ps, %at : tensor<{n}x!tt.ptr<f32>>, tensor<{n}xi32>
    %b = tt.addptr %qs, %at : tensor<{n}x!tt.ptr<f32>>, tensor<{n}xi32>
    %x = tt.load %a : tensor<{n}x!tt.ptr<f32>>
    %y = {second} : tensor<{n}x{kind}>
    %z = arith.addf %x, %y : tensor<{n}xf32>
    tt.store %a, %z : tensor<{n}x!tt.ptr<f32>>
    tt.return
  }}
}}
"""


@pytest.mark.parametrize(
    ("each", "arrays", "warps", "moved"),
    [(256, 1, 4, 152), (512, 1, 4, 9044), (128, 2, 4, 0), (256, 2, 4, 10696), (512, 2, 4, 23160), (128, 2, 16, 2880)],
)
def test_loads_that_ptxas_brings_forward_spill_as_they_do_there(each: int, arrays: int, warps: int, moved: int) -> None:
    """Bytes a thread stores to local memory and reads back: machine code of products by a number and of sums of two
    arrays, masked (ptxas 12.8, sm_90)."""
    second = ("arith.constant dense<3.0>", "f32") if arrays == 1 else ("tt.load %b", "!tt.ptr<f32>")
    text = STREAM.format(n=each * 32 * warps, second=second[0], kind=second[1])
    found = register_pressure(parse_ttir(text), 32 * warps).spilled_bytes
    assert found < 160 if moved < 160 else 0.75 < found / moved < 1.33


def test_bytes_that_lie_across_the_sum_take_a_load_each_and_a_permute() -> None:
    """A tile of 128 x 128 bytes by 4 warps: 256 loads, each a clock of the SM, and 192 permutes a warp (sm_80)."""
    a100 = get_spec("a100")

    def clocks(unit: str, crossed: float) -> float:
        block = BlockProfile(dots=(Dot(unit, 2.0 * 128**3, 128, 128 * 128, crossed),))
        return block_seconds(KernelProfile((block,), (BlockPressure(),)), 4, 2, a100, {})[0] * a100.clock_hz

    loads, permutes = 4 * 256, 4 * 192 * 32 / 64
    found = {unit: clocks(unit, 128.0 * 128.0) - clocks(unit, 0.0) for unit in ("tensor_int8", "tensor_tf32")}
    assert found["tensor_int8"] == pytest.approx(loads + permutes, rel=0.01)
    assert found["tensor_tf32"] == pytest.approx(loads, rel=0.01)


def test_indices_fill_slots_that_half_as_many_lanes_for_numbers_leave() -> None:
    a100, clocks = get_spec("a100"), {}
    for mixed in (False, True):
        for name, counts in {"both": {"fp32": 64, "int": 64}, "numbers": {"fp32": 96, "imad": 32}}.items():
            for spec in (a100, H100):
                seconds = vector_seconds(Counter(counts), spec, mixed)
                clocks[name, spec.name, mixed] = round(seconds * spec.clock_hz, 1)
    assert clocks["both", "a100", False] == clocks["numbers", "a100", False] == 2.0
    assert clocks["both", "a100", True] == 1.6 and clocks["numbers", "a100", True] == 2.0  # one pipe has both
    assert all(clocks[name, "h100", True] == clocks[name, "h100", False] == 1.0 for name in ("both", "numbers"))


def test_either_pipe_adds() -> None:
    adds = [op for op in walk(GATHERED.body) if op.name == "arith.addi"]
    assert all(instructions(op) == {"add": 1.0} for op in adds)
    assert unit_rate("add", H100) == 2 * unit_rate("int", H100) == 2 * unit_rate("imad", H100)


@pytest.mark.parametrize(("left", "few", "lines"), [("%left", 1, 2048), ("%near", 32, 2048), ("%near", 4, 0)])
def test_lanes_apart_ask_for_a_line_each(left: str, few: int, lines: int) -> None:
    """What lies 32 numbers apart or more, or an unknown number, takes a clock of L1 for each element left in."""
    profile = profile_of(parse_ttir(PRODUCT.format(channel="arith.divsi", left=left, few=few)))
    first, _ = profile.blocks[1].loads
    assert first.lines == lines
    all_of, none_of = (block_seconds(profile, 16, 4, H100, {first.number: share})[1] for share in (1.0, 0.0))
    assert (all_of >= lines / H100.clock_hz > none_of) if lines else all_of < 2048 / H100.clock_hz


def test_products_of_a_value_with_itself_are_followed_once() -> None:
    """Ways through a chain of 40 double with each: 2e12."""
    chain = "".join(f"%m{n + 1} = arith.muli %m{n}, %m{n} : tensor<64xi32>\n" for n in range(40))
    text = PRODUCT.format(channel="arith.divsi", left="%left", few=1).replace("%m {axis = 1", "%m40 {axis = 1")
    text = text.replace("%many = ", f"%m0 = arith.addi %m, %m : tensor<64xi32>\n{chain}%many = ")
    assert profile_of(parse_ttir(text)).blocks[1].loads


CARRIED = """
module {
  tt.func public @kernel(%p: !tt.ptr<f32> {tt.divisibility = 16 : i32}, %n: i32, %rounds: i32) {
    %zero = arith.constant 0 : i32
    %one = arith.constant 1 : i32
    %first = arith.constant dense<0> : tensor<64xi32>
    %range = tt.make_range {end = 64 : i32, start = 0 : i32} : tensor<64xi32>
    %all = tt.splat %n : i32 -> tensor<64xi32>
    %here = arith.addi %range, %all : tensor<64xi32>
    %inside = arith.cmpi slt, %here, %all : tensor<64xi32>
    %bases = tt.splat %p : !tt.ptr<f32> -> tensor<64x!tt.ptr<f32>>
    %end = scf.for %i = %zero to %rounds step %one iter_args(%kept = %range) -> (tensor<64xi32>) : i32 {
      %new = arith.cmpi eq, %i, %n : i32
      %columns = scf.if %new -> (tensor<64xi32>) {
        %within = arith.select %inside, %here, %first HINT : tensor<64xi1>, tensor<64xi32>
        scf.yield %within : tensor<64xi32>
      } else {
        scf.yield %kept : tensor<64xi32>
      }
      %a = tt.addptr %bases, %columns : tensor<64x!tt.ptr<f32>>, tensor<64xi32>
      %x = tt.load %a : tensor<64x!tt.ptr<f32>>
      tt.store %a, %x : tensor<64x!tt.ptr<f32>>
      scf.yield %columns : tensor<64xi32>
    }
    tt.return
  }
}
"""


@pytest.mark.parametrize(("hint", "way"), [("{tt.contiguity = dense<64> : tensor<1xi32>}", "beside"), ("", "other")])
def test_what_a_hint_says_holds_through_branches_and_loops(hint: str, way: str) -> None:
    """A persistent product's columns: made anew by a branch, carried by the loop, said to lie beside each other."""
    (load,) = [op for op in walk(parse_ttir(CARRIED.replace("HINT", hint)).body) if op.name == "tt.load"]
    assert step(load.operands[0], 0) == way


STRIDE = "%s: i32 {tt.divisibility = 16 : i32}"
MOVED_ON = parse_ttir(
    """
module {
  tt.func public @f(%x: !tt.ptr<i8> {tt.divisibility = 16 : i32}, %scales: !tt.ptr<f32>, %n: i32, STRIDE) {
    %zero = arith.constant 0 : i32
    %one = arith.constant 1 : i32
    %next = arith.constant dense<128> : tensor<64x128xi32>
    %start = arith.constant dense<0.0> : tensor<64x64xf32>
    %rows = tt.make_range {start = 0 : i32, end = 64 : i32} : tensor<64xi32>
    %along = tt.make_range {start = 0 : i32, end = 128 : i32} : tensor<128xi32>
    %step = tt.splat %s : i32 -> tensor<64xi32>
    %offset = arith.muli %rows, %step : tensor<64xi32>
    %below = tt.expand_dims %offset {axis = 1 : i32} : tensor<64xi32> -> tensor<64x1xi32>
    %left = tt.broadcast %below : tensor<64x1xi32> -> tensor<64x128xi32>
    %beside = tt.expand_dims %along {axis = 0 : i32} : tensor<128xi32> -> tensor<1x128xi32>
    %right = tt.broadcast %beside : tensor<1x128xi32> -> tensor<64x128xi32>
    %index = arith.addi %left, %right : tensor<64x128xi32>
    %all = tt.splat %x : !tt.ptr<i8> -> tensor<64x128x!tt.ptr<i8>>
    %first = tt.addptr %all, %index : tensor<64x128x!tt.ptr<i8>>, tensor<64x128xi32>
    %each = tt.splat %scales : !tt.ptr<f32> -> tensor<64x!tt.ptr<f32>>
    %own = tt.addptr %each, %offset : tensor<64x!tt.ptr<f32>>, tensor<64xi32>
    %end:2 = scf.for %i = %zero to %n step %one iter_args(%sum = %start, %p = %first) -> (CARRIED) : i32 {
      %a = tt.load %p : tensor<64x128x!tt.ptr<i8>>
      %f = tt.bitcast %a : tensor<64x128xi8> -> tensor<64x128xf8E4M3FN>
      %t = tt.trans %f {order = array<i32: 1, 0>} : tensor<64x128xf8E4M3FN> -> tensor<128x64xf8E4M3FN>
      %on = tt.splat %i : i32 -> tensor<64xi32>
      %at = tt.addptr %own, %on : tensor<64x!tt.ptr<f32>>, tensor<64xi32>
      %scale = tt.load %at : tensor<64x!tt.ptr<f32>>
      %product = tt.dot %f, %t, %start : tensor<64x128xf8E4M3FN> * tensor<128x64xf8E4M3FN> -> tensor<64x64xf32>
      %more = tt.expand_dims %scale {axis = 1 : i32} : tensor<64xf32> -> tensor<64x1xf32>
      %wide = tt.broadcast %more : tensor<64x1xf32> -> tensor<64x64xf32>
      %scaled = arith.mulf %product, %wide : tensor<64x64xf32>
      %total = arith.addf %sum, %scaled : tensor<64x64xf32>
      %then = tt.addptr %p, %next : tensor<64x128x!tt.ptr<i8>>, tensor<64x128xi32>
      scf.yield %total, %then : tensor<64x64xf32>, tensor<64x128x!tt.ptr<i8>>
    }
    tt.return
  }
}
""".replace("CARRIED", "tensor<64x64xf32>, tensor<64x128x!tt.ptr<i8>>").replace("STRIDE", STRIDE)
)


def test_pointers_that_a_loop_moves_on_are_moved_once_for_each_access() -> None:
    """One of 16 bytes here, in two instructions (machine code by ptxas)."""
    (moved,) = [
        op
        for op in walk(MOVED_ON.body)
        if op.name == "tt.addptr" and op.block and op.results[0].uses[0].name == "scf.yield"
    ]
    lanes = lane_instructions(moved, layouts_of(MOVED_ON))
    assert sum(numel * count for _, numel, count, _ in lanes) == 2 * 64 * 128 / 16


def test_a_scale_in_the_sector_of_the_round_before_comes_from_l1() -> None:
    """Rows lie an unknown number apart, so that each asks for a sector of its own where it is new."""
    profile = profile_of(MOVED_ON)
    (scale,) = [load for load in profile.blocks[1].loads if load.exposed]
    assert scale.nearby == 4 / 32
    new, near = (block_seconds(profile, 4, 5, H100, {scale.number: share})[1] for share in (8.0, 1.0))
    assert near < new < near + H100.dram_latency


def test_eight_bit_floats_become_halves_where_no_instruction_multiplies_them() -> None:
    """64 rows go by wgmma on Hopper, fewer by mma.sync, which takes them on Ada alone."""
    few, enough = (Dot("tensor_fp8", 2.0 * rows * 64 * 128, rows, rows * 64) for rows in (32, 64))
    ada = get_spec("l40s")
    halves = Dot("tensor_fp16", few.operations, few.rows, few.elements)
    assert dot_rate(few, 128, H100) == dot_rate(halves, 128, H100) < 0.5 * dot_rate(enough, 128, H100)
    assert dot_rate(few, 128, ada) > 1.5 * dot_rate(halves, 128, ada)


def test_instructions_of_independent_elements_come_right_behind_each_other_in_a_lone_program() -> None:
    """Of 64 x 64 results that four warps scale a thread has 32 elements; where lanes exchange, none is counted on."""
    block = profile_of(MOVED_ON).blocks[1]
    lanes, waiting = (block_lanes(each, 128, H100, alone=True) for each in (block, replace(block, reductions=1.0)))
    assert lanes["fp32"] == block_lanes(block, 128, H100)["fp32"] == waiting["fp32"] / 2
    assert lanes["int"] > block_lanes(block, 128, H100)["int"]  # numbers of which a thread has one


def test_mma_sync_and_ldmatrix_take_issue_slots() -> None:
    """16 x 32 x 128 of eight bits by four warps: a warp has 4 products and 6 loads (machine code for sm_80 by ptxas);
    on Hopper, as halves, 8 products."""
    few = Dot("tensor_int8", 2.0 * 16 * 32 * 128, 16, 16 * 32)
    block = BlockProfile(dots=(few,))
    assert block_lanes(block, 128, get_spec("a100"))["issue"] == (4 + 6) * 128
    halves = replace(block, dots=(replace(few, unit="tensor_fp8"),))
    assert block_lanes(halves, 128, H100)["issue"] == (8 + 6) * 128
    wide = replace(block, dots=(Dot("tensor_fp8", 2.0 * 64 * 64 * 128, 64, 64 * 64),))
    assert not block_lanes(wide, 128, H100)["issue"]


OUTER = """
module {{
  tt.func public @kernel(%p: !tt.ptr<f32> {{tt.divisibility = 16 : i32}}, %q: !tt.ptr<f32>) {{
    %at = tt.make_range {{end = {width} : i32, start = 0 : i32}} : tensor<{width}xi32>
    %all = tt.splat %p : !tt.ptr<f32> -> tensor<{width}x!tt.ptr<f32>>
    %where = tt.addptr %all, %at : tensor<{width}x!tt.ptr<f32>>, tensor<{width}xi32>
    %x = tt.load %where : tensor<{width}x!tt.ptr<f32>>
    %row = tt.expand_dims %x {{axis = 0 : i32}} : tensor<{width}xf32> -> tensor<1x{width}xf32>
    %a = tt.broadcast %row : tensor<1x{width}xf32> -> tensor<{rows}x{width}xf32>
    %b = tt.expand_dims %a {{axis = 0 : i32}} : tensor<{rows}x{width}xf32> -> tensor<1x{rows}x{width}xf32>
    %c = tt.broadcast %b : tensor<1x{rows}x{width}xf32> -> tensor<{first}x{rows}x{width}xf32>
    %d = arith.mulf %c, %c : tensor<{first}x{rows}x{width}xf32>
    %sum = "tt.reduce"(%d) <{{axis = 2 : i32}}> ({{
    ^bb0(%one: f32, %other: f32):
      %both = arith.addf %one, %other : f32
      tt.reduce.return %both : f32
    }}) : (tensor<{first}x{rows}x{width}xf32>) -> tensor<{first}x{rows}xf32>
    tt.return
  }}
}}
"""


@pytest.mark.parametrize(
    ("first", "rows", "width", "compiled"), [(4, 16, 64, 552), (8, 16, 32, 456), (2, 32, 128, 1000), (16, 16, 16, 384)]
)
def test_a_block_of_three_sides_lies_an_element_a_thread_along_its_last(
    first: int, rows: int, width: int, compiled: int
) -> None:
    """``compiled``: instructions of a warp in an outer product's sum along that side (ptxas 12.8, sm_90, four warps),
    with its loads and store: what is exchanged takes most of them."""
    function = parse_ttir(OUTER.format(first=first, rows=rows, width=width))
    (op,) = [op for op in walk(function.body) if op.name == "tt.reduce"]
    counted = sum(numel * count / 128 for _, numel, count, _ in lane_instructions(op, layouts_of(function)))
    assert 0.7 * compiled < counted < 1.25 * compiled
