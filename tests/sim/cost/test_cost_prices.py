"""Every operator that the device allows has a price or says that it has none; failures make nothing cheaper."""

from collections.abc import Iterator

import pytest
import torch

import drkernel.sim.gpu.device_journal as journal
import drkernel.sim.gpu.pricing as pricing
from drkernel.sim.cost.operators import FAMILIES, UNPRICED, base_name, family_of, unpriced
from drkernel.sim.cost.products import gemm_unit
from drkernel.sim.cost.records import Unpriced
from drkernel.sim.gpu.engine import DeviceEngine
from drkernel.sim.gpu.operator_rules import ALLOCATORS, METADATA_OPERATORS, rule_of
from drkernel.sim.spec import get_spec
from drkernel.sim.wire.commands import LaunchCommand, Ref, UnsupportedOp

H100 = get_spec("h100")
BY_STORAGE = ("_unsafe_view", "_reshape_alias", "_conj", "_local_scalar_dense")
"""views whose schemas do not say so, and the copy of one number to the host, which the device prices as a copy"""


def allowed() -> Iterator[str]:
    """Every overload of every ATen operator that the device would run."""
    for qualified in torch._C._dispatch_get_all_op_names():
        if not qualified.startswith("aten::"):
            continue
        name = qualified.removeprefix("aten::")
        try:
            rule_of(name)
        except UnsupportedOp:
            continue
        yield name


def schema_of(name: str) -> torch.FunctionSchema:
    base, _, overload = name.partition(".")
    return getattr(getattr(torch.ops.aten, base), overload or "default")._schema


def handles_tensors(name: str) -> bool:
    schema = schema_of(name)
    return any("Tensor" in str(one.type) for one in (*schema.arguments, *schema.returns))


def is_view(name: str) -> bool:
    """By its schema its results are views; the device looks at their storage."""
    aliases = [value.alias_info for value in schema_of(name).returns]
    return bool(aliases) and all(alias is not None and not alias.is_write for alias in aliases)


def test_every_allowed_operator_is_priced_or_free_or_says_that_it_has_no_price() -> None:
    assert not FAMILIES.keys() & UNPRICED.keys()
    unknown, seen = set(), 0
    for name in allowed():
        seen += 1
        base, bare = base_name(name), name.partition(".")[0]
        free = bare in ALLOCATORS or bare in METADATA_OPERATORS or is_view(name) or not handles_tensors(name)
        known = family_of(name, ()) is not unpriced or base in UNPRICED
        if not (known or free or bare in BY_STORAGE):
            unknown.add(name)
    assert seen > 1400
    assert not unknown, f"neither priced nor unpriced: {sorted(unknown)}"


# ---- what a device does with it


def device() -> DeviceEngine:
    return DeviceEngine(H100, checks="off")


def handle(engine: DeviceEngine, *shape: int, dtype: torch.dtype = torch.float32) -> Ref:
    return Ref(engine.register(torch.ones(*shape, dtype=dtype)).handle)


def test_an_operator_without_a_price_is_named_and_costs_a_pass_at_least() -> None:
    engine = device()
    x = handle(engine, 512, 512)
    engine.op("special_bessel_j0.default", [x], {})
    engine.op("relu.default", [x], {})
    profile = engine.profile()
    assert profile.unpriced == ("aten.special_bessel_j0",)
    rows = {row.name: row for row in profile.rows}
    assert rows["aten.special_bessel_j0"].unpriced == "its arithmetic is not counted"
    assert rows["aten.special_bessel_j0"].seconds > 0 and rows["aten.relu"].unpriced is None


def test_views_are_free_by_the_storage_that_they_share_and_copies_under_a_view_s_name_are_not() -> None:
    engine = device()
    x = handle(engine, 1024, 1024)
    views = (
        ("t.default", [x]),
        ("expand.default", [x, [4, 1024, 1024]]),
        ("split.Tensor", [x, 8]),
        ("t_.default", [x]),
    )
    for name, args in views:
        engine.op(name, args, {})
    assert engine.profile().rows == () and not engine.counters.operators
    transposed = Ref(engine.op("expand.default", [x, [4, 1024, 1024]], {}).handle)
    with pytest.raises(UnsupportedOp):  # a copy under a view's name would be a composite operator's doing
        engine.op("reshape.default", [transposed, [-1]], {})
    engine.op("clone.default", [transposed], {})
    engine.op("_to_copy.default", [x], {"dtype": torch.float16})
    assert engine.counters.operators == {"aten.clone": 1, "aten._to_copy": 1} and len(engine.profile().rows) == 2


def test_keywords_and_positions_have_one_price() -> None:
    by_position, by_keyword = device(), device()
    for engine, positions, names in ((by_position, 3, ()), (by_keyword, 0, ("batch2", "batch1", "self"))):
        tensors = {
            "self": handle(engine, 8, 64),
            "batch1": handle(engine, 4, 8, 512),
            "batch2": handle(engine, 4, 512, 64),
        }
        engine.op("addbmm.default", list(tensors.values())[:positions], {name: tensors[name] for name in names})
    one, other = (engine.profile() for engine in (by_position, by_keyword))
    assert one.total_seconds == other.total_seconds > 0


def test_what_is_only_written_is_not_read() -> None:
    fresh, given = device(), device()
    n = 2**24
    fresh.op("add.Tensor", [handle(fresh, n), handle(fresh, n)], {})
    given.op("add.out", [handle(given, n), handle(given, n)], {"out": handle(given, n)})
    assert fresh.profile().total_seconds == pytest.approx(given.profile().total_seconds)


def failing(monkeypatch: pytest.MonkeyPatch, on: str) -> None:
    """A cost model that breaks on one operator."""
    real = journal.operator_cost

    def broken(name: str, *args: object, **kwargs: object) -> object:
        if name.startswith(on):
            raise ZeroDivisionError("deliberately")
        return real(name, *args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(journal, "operator_cost", broken)


def test_a_model_that_fails_loses_no_other_work_and_gives_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    broken, whole = device(), device()
    for engine in (broken, whole):
        if engine is broken:
            failing(monkeypatch, "sigmoid")
        x = handle(engine, 2048, 2048)
        for name in ("relu.default", "sigmoid.default", "exp.default"):
            engine.op(name, [x], {})
        engine.profile()
        monkeypatch.undo()
    assert broken.profile().unpriced == ("aten.sigmoid",)
    rows = {row.name: row for row in broken.profile().rows}
    assert "ZeroDivisionError: deliberately" in str(rows["aten.sigmoid"].unpriced)
    for row in whole.profile().rows:
        assert row.unpriced is None
        assert row.name == "aten.sigmoid" or rows[row.name].seconds >= 0.99 * row.seconds


def test_a_launch_whose_model_fails_is_recorded_without_a_price(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: object, **kwargs: object) -> object:
        raise KeyError("deliberately")

    monkeypatch.setattr(pricing, "launch_cost", broken)
    engine = device()
    ttir = """module {
  tt.func public @fill(%p: !tt.ptr<f32>) {
    %c = arith.constant 1.0 : f32
    tt.store %p, %c : !tt.ptr<f32>
    tt.return
  }
}"""
    x = handle(engine, 64)
    engine.launch(LaunchCommand("fill", "here.fill", ttir, (1, 1, 1), (x,)))  # does not raise: host code learns nothing
    profile = engine.profile()
    assert profile.unpriced == ("fill",) and profile.rows[0].owner == "custom"
    assert [launch.name for launch in engine.counters.launches] == ["fill"]


def test_a_product_that_no_library_has_gives_no_price() -> None:
    with pytest.raises(Unpriced, match="products of int64"):
        gemm_unit("int64")
