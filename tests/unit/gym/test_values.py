"""Values between judge and runner come back as they went, and nothing else gets through."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from drkernel.gym.runner.values import pack, unpack
from drkernel.gym.session.base import MAX_OUTPUTS, claims_of, plain_of
from drkernel.sim.wire.commands import ProtocolError

plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False) | st.text(max_size=10),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(st.text(max_size=3) | st.integers(0, 9), inner, max_size=3)
    ),
    max_leaves=12,
)


@given(plain)
@settings(max_examples=200, deadline=None)
def test_plain_values_come_back(value):
    data, payload = pack(value)
    again = unpack(data, payload)
    assert again == value and type(again) is type(value)


def test_special_numbers_and_dtypes():
    data, payload = pack([math.inf, -math.inf, math.nan, 1 + 2j, torch.float8_e4m3fn])
    again = unpack(data, payload)
    assert again[:2] == [math.inf, -math.inf] and math.isnan(again[2]) and again[3:] == [1 + 2j, torch.float8_e4m3fn]


@pytest.mark.parametrize(
    "tensor",
    [
        torch.randn(3, 4),
        torch.randn(3, 4).T,
        torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last),
        torch.zeros(0, 3),
        torch.tensor(7),
        torch.arange(5, dtype=torch.uint8),
        torch.randn(4, dtype=torch.complex64),
        torch.randn(6).to(torch.float8_e5m2),
        torch.randn(3, requires_grad=True),
    ],
)
def test_tensors_come_back_with_strides(tensor):
    data, payload = pack({"a": (tensor, [tensor])})
    first, (second,) = unpack(data, payload)["a"]
    for again in (first, second):
        assert again.dtype == tensor.dtype and again.stride() == tensor.stride()
        assert again.requires_grad == tensor.requires_grad
        assert (
            again.detach()
            .reshape(-1)
            .view(torch.uint8)
            .equal(tensor.detach().contiguous().reshape(-1).view(torch.uint8))
        )


@pytest.mark.parametrize("value", [object(), {1, 2}, b"bytes", lambda: 0, torch.device("cpu")])
def test_what_cannot_cross_is_refused_by_name(value):
    with pytest.raises(TypeError, match=type(value).__name__):
        pack([value])


def test_a_tensor_elsewhere_is_refused():
    with pytest.raises(TypeError, match="meta"):
        pack(torch.zeros(2, device="meta"))


@pytest.mark.parametrize(
    "data",
    [
        {"z": 1},
        {"f": "x"},
        {"f": None},
        {"c": [1]},
        {"d": "nothing"},
        {"mapping": [[1]]},
        {"tuple": 3},
        {"tensor": {}},
        {"tensor": {"dtype": "float32", "shape": [2], "at": [0, 4]}},
        {"tensor": {"dtype": "float32", "shape": [-1], "at": [0, 4]}},
        {"tensor": {"dtype": "float32", "shape": [1 << 62, 4], "at": [0, 0]}},
        {"tensor": {"dtype": "float32", "shape": "ab", "at": [0, 4]}},
        {"f": "1", "c": 2},
        {"mapping": [[[], 1]]},
        {"granted": {"s": [1, 2]}},
    ],
)
def test_malformed_data_is_refused(data):
    with pytest.raises(ProtocolError):
        unpack(data, b"\0" * 4)


def test_depth_is_bounded():
    data = []
    for _ in range(100):
        data = [data]
    with pytest.raises(ProtocolError, match="deep"):
        unpack(data, b"")


@pytest.mark.parametrize("value", [None, True, 3, -0.5])
def test_a_number_among_outputs_is_taken(value):
    assert plain_of(pack(value)[0]) == value


@pytest.mark.parametrize("value", ["3", [3], (1, 2), {"a": 1}])
def test_what_is_no_number_among_outputs_is_refused(value):
    with pytest.raises(ValueError, match="is no number"):
        plain_of(pack(value)[0])


@pytest.mark.parametrize(
    ("outputs", "cause"),
    [
        ({"handle": 1}, "a list of objects"),
        ([{"handle": 1}, 2], "a list of objects"),
        ([{"handle": True}], "63 bits"),
        ([{"handle": 1 << 63}], "63 bits"),
        ([{"handle": None}] * (MAX_OUTPUTS + 1), "more than"),
    ],
)
def test_outputs_that_a_runner_claims_are_checked_for_form(outputs, cause):
    with pytest.raises(ValueError, match=cause):
        claims_of({"outputs": outputs})
