"""Which operators the device runs, in which form, what is free, and what its errors say."""

from typing import Any

import pytest
import torch

from drkernel.sim.gpu.engine import DeviceEngine, DeviceFault, without_values
from drkernel.sim.gpu.operator_rules import rule_of
from drkernel.sim.spec import get_spec
from drkernel.sim.wire.commands import ProtocolError, Ref, UnsupportedOp


@pytest.fixture
def engine() -> DeviceEngine:
    return DeviceEngine(get_spec("h200"))


def put(engine: DeviceEngine, tensor: torch.Tensor) -> Ref:
    return Ref(engine.register(tensor).handle)


def refs(specs: Any) -> list[Ref]:
    return [Ref(spec.handle) for spec in (specs if isinstance(specs, (list, tuple)) else [specs])]


@pytest.mark.parametrize(
    "name", ["contiguous.default", "to.dtype", "reshape.default", "matmul.default", "conv2d.default", "linear.default"]
)
def test_composite_operators_are_refused_by_name(name: str) -> None:
    with pytest.raises(UnsupportedOp, match=rf"aten::{name.partition('.')[0]}"):
        rule_of(name)


@pytest.mark.parametrize("name", ["set_.source_Tensor", "from_file.default", "_to_sparse.default"])
def test_operators_that_rebind_memory_are_refused(name: str) -> None:
    with pytest.raises(UnsupportedOp):
        rule_of(name)


def test_a_call_has_one_form_however_its_arguments_are_given() -> None:
    rule = rule_of("softplus.default")
    assert rule.normal([Ref(1)], {}) == rule.normal([Ref(1), 1], {"threshold": 20}) == ([Ref(1), 1, 20], {})
    with pytest.raises(UnsupportedOp, match="twice"):
        rule.normal([Ref(1), 1], {"beta": 2})
    with pytest.raises(UnsupportedOp, match="no argument"):
        rule.normal([Ref(1)], {"gamma": 2})
    with pytest.raises(UnsupportedOp, match="was not given"):
        rule.normal([], {})
    with pytest.raises(UnsupportedOp, match="device"):
        rule_of("empty.memory_format").normal([[3]], {"device": "meta"})


def test_no_tensor_reaches_beyond_its_storage(engine: DeviceEngine) -> None:
    x = put(engine, torch.rand(8))
    for name, size, stride in (
        ("_reshape_alias.default", [9], [1]),
        ("_reshape_alias.default", [2, 2], [7, 1]),
        ("as_strided.default", [2**62, 3], [2**62, 1]),
        ("as_strided.default", [4], [-1]),
    ):
        with pytest.raises((RuntimeError, ProtocolError)):
            engine.op(name, [x, size, stride], {})
    inside = engine.op("_reshape_alias.default", [x, [2, 4], [4, 1]], {})
    assert inside.shape == (2, 4)


def test_storages_that_an_operator_moves_are_followed(engine: DeviceEngine) -> None:
    out = put(engine, torch.zeros(4))
    view = refs(engine.op("view.default", [out, [2, 2]], {}))[0]
    a, b = put(engine, torch.ones(100, 1000)), put(engine, torch.ones(100, 1000))
    before = engine.heap.used_bytes
    spec = engine.op("add.out", [a, b], {"out": out})
    assert spec.handle == out.handle and spec.shape == (100, 1000)
    held, seen = engine.heap.held(out.handle), engine.heap.held(view.handle)
    storage = held.tensor.untyped_storage()
    assert seen.base == held.base == storage.data_ptr() and seen.spec.address == seen.tensor.data_ptr()
    assert engine.heap.used_bytes == before - 16 + storage.nbytes()
    found = engine.heap.memory.find(seen.spec.address)
    assert found is not None and found.nbytes == storage.nbytes()
    for ref in (out, view, a, b):
        engine.free(ref.handle)
    assert engine.heap.used_bytes == 0 and engine.heap.memory.all() == []


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("embedding.default", [torch.rand(4, 3), torch.tensor([4])]),
        ("gather.default", [torch.rand(4, 3), 0, torch.tensor([[0, 9, 0]])]),
        ("index.Tensor", [torch.rand(4), [torch.tensor([-5])]]),
        ("take.default", [torch.rand(4), torch.tensor([4])]),
        ("nll_loss_backward.default", [torch.tensor(1.0), torch.rand(2, 3), torch.tensor([0, 3]), None, 1, -100,
                                       torch.tensor(2.0)]),
        ("max_pool2d_with_indices_backward.default", [torch.rand(1, 1, 1, 1), torch.rand(1, 1, 2, 2), [2, 2], [2, 2],
                                                      [0, 0], [1, 1], False, torch.full((1, 1, 1, 1), 10**6)]),
        ("max_unpool2d.default", [torch.rand(1, 1, 2, 2), torch.full((1, 1, 2, 2), 16), [4, 4]]),
        ("multi_margin_loss.default", [torch.rand(2, 3), torch.tensor([0, 3])]),
        ("embedding_dense_backward.default", [torch.rand(2, 3), torch.tensor([0, -1]), 10, -1, True]),
        *[("_embedding_bag_backward.default", [torch.rand(2, 3), torch.tensor([0, row]), torch.tensor([0, 1]),
                                               torch.tensor([0, bag]), torch.tensor([1, 1]), torch.full((2, 3), top), 2,
                                               False, mode, False, None])
          for row, bag, top, mode in ((2, 1, 0, 0), (1, 2, 0, 1), (1, 1, 2, 2))],
        ("_embedding_bag_backward.default", [torch.rand(1, 3), torch.tensor([0, 1]), torch.tensor([0, 1]),
                                             torch.tensor([], dtype=torch.int64), torch.tensor([2]), torch.tensor([]),
                                             2, False, 0, False, None]),
        ("_embedding_bag_per_sample_weights_backward.default",
         [torch.rand(2, 3), torch.rand(2, 3), torch.tensor([0, 2]), torch.tensor([0, 1]), torch.tensor([0, 1]), 0]),
        ("_ctc_loss_backward.default", [torch.rand(1), torch.rand(3, 1, 2), torch.tensor([[2]]), [3], [1],
                                        torch.rand(1), torch.rand(1, 3, 3), 0]),
        *[("grid_sampler_2d_backward.default", [torch.rand(1, 1, 2, 2), torch.rand(1, 1, 3, 3),
                                                torch.full((1, 2, 2, 2), far), 0, padding, False, [True, True]])
          for far, padding in ((float("nan"), 1), (float("inf"), 2), (-3e38, 2))],
    ],
)  # fmt: skip
def test_an_index_out_of_bounds_breaks_the_device_as_on_a_gpu(engine: DeviceEngine, name: str, args: list[Any]) -> None:
    def sent(value: Any) -> Any:
        if isinstance(value, list):
            return [sent(item) for item in value]
        return put(engine, value) if isinstance(value, torch.Tensor) else value

    with pytest.raises(DeviceFault, match="device-side assert") as error:
        engine.op(name, sent(args), {})
    assert not any(digit in str(error.value).partition(":")[2] for digit in "456789")
    with pytest.raises(DeviceFault):
        engine.op("zeros.default", [[1]], {})


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("native_batch_norm_backward.default", [torch.rand(2, 3, 4), torch.rand(2, 3, 4), torch.rand(3), torch.rand(3),
                                                torch.rand(3), torch.rand(2), torch.rand(3), True, 1e-5,
                                                [True, True, True]]),
        ("native_layer_norm_backward.default", [torch.rand(4, 8), torch.rand(4, 8), [8], torch.rand(1), torch.rand(4),
                                                torch.rand(8), torch.rand(8), [True, True, True]]),
        ("native_group_norm.default", [torch.rand(2, 4, 3), None, None, 20, 4, 3, 2, 1e-5]),
        ("unfold_backward.default", [torch.rand(9, 2), [4], 0, 2, 1]),
        ("_fft_c2r.default", [torch.rand(3, dtype=torch.complex64), [0], 0, 100]),
        ("segment_reduce.default", [torch.rand(4), "sum"]),
        ("avg_pool2d.default", [torch.rand(1, 1, 4, 4), [2, 2], [0, 0]]),
        ("empty_strided.default", [[2**40, 2**40], [1, 1]]),
        ("gelu_backward.default", [torch.rand(10), torch.rand(10, 10)]),
        ("gelu_backward.default", [torch.rand(10, 10, dtype=torch.float64), torch.rand(10, 10)]),
        ("_pdist_forward.default", [torch.rand(5, 5, 0)]),
        ("_pdist_backward.default", [torch.rand(9), torch.rand(5, 2), 2.0, torch.rand(10)]),
        ("_cdist_backward.default", [torch.rand(2, 3), torch.rand(2, 4), torch.rand(3, 5), 2.0, torch.rand(2, 3)]),
        ("_cdist_backward.default", [torch.rand(2, 3), torch.rand(2, 4), torch.rand(3, 4), 2.0, torch.rand(2, 2)]),
        ("_ctc_loss_backward.default", [torch.rand(1), torch.rand(3, 1, 2), torch.tensor([[1]]), [3], [1],
                                        torch.rand(1), torch.rand(1, 3, 2), 0]),
        ("_embedding_bag_backward.default", [torch.rand(2, 3), torch.tensor([0, 1]), torch.tensor([0, 1]),
                                             torch.tensor([0]), torch.tensor([1, 1]), torch.tensor([]), 2, False, 0,
                                             False, None]),
        ("_embedding_bag_per_sample_weights_backward.default",
         [torch.rand(2, 3), torch.rand(2, 2), torch.tensor([0, 1]), torch.tensor([0, 1]), torch.tensor([0, 1]), 0]),
        ("_upsample_bilinear2d_aa.default", [torch.rand(6, 3, 10, 20), [8, 21], False, 0.8, 1.0]),
        ("multi_margin_loss_backward.default", [torch.rand(1), torch.rand(0), torch.tensor(0), 1, 1.0, None, 1]),
        ("multilabel_margin_loss_backward.default", [torch.rand(()), torch.rand(0), torch.tensor(0), 1,
                                                     torch.rand(())]),
    ],
)  # fmt: skip
def test_what_a_kernel_takes_on_trust_is_checked(engine: DeviceEngine, name: str, args: list[Any]) -> None:
    options = {"lengths": put(engine, torch.tensor([2, 9])), "unsafe": True} if name.startswith("segment") else {}
    sent = [put(engine, value) if isinstance(value, torch.Tensor) else value for value in args]
    with pytest.raises(RuntimeError) as error:
        engine.op(name, sent, options)
    assert not isinstance(error.value, DeviceFault)


def test_what_the_host_learns_is_counted(engine: DeviceEngine) -> None:
    x = put(engine, torch.tensor([0.0, 3.0, 0.0, 7.0]))
    for name, args, told in (
        ("nonzero.default", [x], 8),
        ("masked_select.default", [x, put(engine, torch.tensor([True, False, True, True]))], 8),
        ("index.Tensor", [x, [put(engine, torch.tensor([True, False, True, True]))]], 8),
        ("index.Tensor", [x, [put(engine, torch.tensor([1, 2]))]], 0),
        ("_unique2.default", [x], 24),
        ("equal.default", [x, x], 1),
        ("add.Tensor", [x, x], 0),
    ):
        engine.reset_counters()
        engine.op(name, args, {})
        assert engine.counters.host_bytes == told, name
        assert bool(told) == any(row.owner == "copy" for row in engine.profile().rows), name
    engine.reset_counters()
    engine.query("elapsed_seconds")
    engine.query("used_bytes")
    engine.query("memory_bytes")
    assert engine.counters.host_bytes == 16


def test_errors_are_counted_and_say_nothing_of_contents(engine: DeviceEngine) -> None:
    probabilities = put(engine, torch.tensor([0.25, -1234.5]))
    engine.reset_counters()
    with pytest.raises(RuntimeError) as error:
        engine.op("multinomial.default", [probabilities, 1], {})
    assert "1234" not in str(error.value)
    assert engine.counters.host_bytes == 8
    known = [torch.rand(3, 14)]
    assert without_values("index 577 is out of bounds for size 14", known, {}) == (
        "index ? is out of bounds for size 14"
    )
    assert without_values("value -1.25e+10 or nan", known, {}) == "value ? or ?"
