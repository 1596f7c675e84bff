"""What an answer depends on, exactly."""

import time

import pytest
import torch

from drkernel.sim.exact.dependence import BoundCall

SHAPE = (4, 6)


def ignored(function, **names):
    """Names of the arguments that a function ignores, for other draws of the same forms."""
    torch.manual_seed(1)
    inputs, others = ([torch.randn(SHAPE) for _ in range(3)] for _ in range(2))
    weight, other = torch.randn(6), torch.randn(6)
    call = BoundCall(
        lambda given: [function(*given, weight)], inputs, others, {"w": weight}, {"w": other}, ("x", "y", "z")
    )
    return call.ignored_by([call.values], 3, time.thread_time() + 20, **names)[0]


@pytest.mark.parametrize(("function", "names"), [
    (lambda x, y, z, w: x + y + z + w, set()),
    (lambda x, y, z, w: x + 1e-30 * y + z * w, set()),
    (lambda x, y, z, w: x + 0 * y + (z - z), {"y", "z", "w"}),
    (lambda x, y, z, w: (x * y + z) / y - z / y + w, {"z", "y"}),
    (lambda x, y, z, w: torch.softmax(x + y.sum(-1, keepdim=True), -1) * z * w, {"y"}),
    (lambda x, y, z, w: torch.softmax(x * y * z * w, -1).sum(-1), {"x", "y", "z", "w"}),
    (lambda x, y, z, w: torch.clamp(x * y * z * w, 1e6, 2e6), {"x", "y", "z", "w"}),
    (lambda x, y, z, w: torch.maximum(x, y.abs() + 100) + z * 0 + w, {"x", "z"}),
])  # fmt: skip
def test_what_cancels_is_not_depended_on(function, names):
    assert ignored(function) == names


def test_only_what_is_asked_for_is_tried():
    assert ignored(lambda x, y, z, w: x + w, names={"y"}) == {"y"}
    assert ignored(lambda x, y, z, w: x + w, names=set()) == set()


def test_tensors_in_lists_have_names():
    pair = [torch.randn(3), torch.randn(3)]
    call = BoundCall(lambda given: [given[0][0] * 2], [pair, 4], [[t + 1 for t in pair], 4], {}, {}, ("pair", "n"))
    assert list(call.tensors) == ["pair[0]", "pair[1]"]
    assert call.ignored_by([call.values], 3, time.thread_time() + 20) == [{"pair[1]"}]
