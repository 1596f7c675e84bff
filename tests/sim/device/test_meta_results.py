"""Forms of results that are remembered are those that PyTorch finds."""

import gc

import pytest
import torch

from drkernel import sim
from drkernel.sim.gpu import shapes
from drkernel.sim.gpu.operator_rules import as_on_cuda
from drkernel.sim.gpu.shapes import on_meta

aten = torch.ops.aten


def meta(*shape, dtype=torch.float32):
    return torch.empty(shape, dtype=dtype, device="meta")


def form(result):
    made = result if isinstance(result, tuple) else (result,)
    return [(type(one), tuple(one.shape), one.stride(), one.dtype, one.untyped_storage().nbytes()) for one in made]


NORM = (meta(4), meta(4), meta(4), meta(4), True, 0.1, 1e-5)
CALLS = [
    (aten.native_batch_norm.default, (meta(2, 4, 8, 8), *NORM)),
    (aten.native_batch_norm.default, (meta(2, 8, 8, 4).permute(0, 3, 1, 2), *NORM)),
    (as_on_cuda("native_batch_norm", aten.native_batch_norm.default), (meta(2, 4, 8, dtype=torch.float16), *NORM)),
    (aten.mm.default, (meta(3, 5), meta(7, 5).t())),
    (aten.sum.dim_IntList, (meta(3, 5), [1], True)),
    (aten.sum.dim_IntList, (meta(3, 5), [1], False)),
    (aten.add.Tensor, (meta(3, 1), meta(5))),
    (aten.add.Scalar, (meta(3, dtype=torch.int64), 1)),
    (aten.add.Scalar, (meta(3, dtype=torch.int64), 1.0)),
    (aten.add.Scalar, (meta(3, dtype=torch.int64), True)),
    (aten.max_pool2d_with_indices.default, (meta(1, 2, 8, 8), [2, 2])),
]


@pytest.mark.parametrize("number", range(len(CALLS)))
def test_what_is_remembered_is_what_pytorch_finds(number):
    call, args = CALLS[number]
    wanted = form(call(*args))
    first, second = on_meta(call, args, {}), on_meta(call, args, {})
    assert form(first) == form(second) == wanted
    given = {leaf.untyped_storage()._cdata for leaf in args if isinstance(leaf, torch.Tensor)}
    made = [one.untyped_storage()._cdata for one in (*_tuple(first), *_tuple(second))]
    assert len({*made, *given}) == len(made) + len(given), "every result has memory of its own"


def _tuple(result):
    return result if isinstance(result, tuple) else (result,)


def test_what_shares_memory_is_not_remembered():
    """``_unsafe_view``'s schema says nothing of it."""
    given = meta(4, 6)
    for call, args in ((aten._unsafe_view.default, (given, [24])), (aten.view.default, (given, [24])),
                       (aten.relu_.default, (given,))):  # fmt: skip
        for _ in range(2):
            assert on_meta(call, args, {}).untyped_storage()._cdata == given.untyped_storage()._cdata


def test_errors_are_pytorchs_own_each_time():
    for _ in range(2):
        with pytest.raises(RuntimeError, match="reduction dim"):
            on_meta(aten.mm.default, (meta(3, 5), meta(4, 5)), {})


def test_memory_is_bounded(monkeypatch):
    monkeypatch.setattr(shapes, "MOST_KNOWN", 8)
    for size in range(1, 40):
        assert on_meta(aten.relu.default, (meta(size),), {}).shape == (size,)
        assert len(shapes._known) <= 8


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
@pytest.mark.parametrize("last", [torch.channels_last, torch.channels_last_3d])
@pytest.mark.parametrize("transposed", [False, True])
def test_a_convolutions_result_lies_in_memory_as_with_data(dtype, last, transposed):
    deep = 2 if last == torch.channels_last else 3
    x, weight = torch.randn(2, 4, *[6] * deep, dtype=dtype), torch.randn(4, 4, *[3] * deep, dtype=dtype)
    for given in ((x, weight), (x.to(memory_format=last), weight), (x, weight.to(memory_format=last))):
        terms = None, [1] * deep, [0] * deep, [1] * deep, transposed, [0] * deep, 1
        with sim.device("h100"):
            made = aten.convolution.default(*(one.cuda() for one in given), *terms)
        foreseen = on_meta(
            as_on_cuda("convolution", aten.convolution.default), (*(one.to("meta") for one in given), *terms), {}
        )
        assert (foreseen.shape, foreseen.stride()) == (made.shape, made.stride())


def test_functions_that_must_not_be_compiled_are_found_among_frozen_objects():
    """``drkernel sim`` freezes what it has imported; without them a run without data imports ``torch._dynamo``."""
    usual = set(map(id, shapes._uncompiled()))
    gc.freeze()
    try:
        assert set(map(id, shapes._uncompiled())) == usual and len(usual) > 100
        assert gc.get_freeze_count(), "they stay frozen"
    finally:
        gc.unfreeze()
