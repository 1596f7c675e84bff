"""Memory shared by tensors, against every pair of elements compared by hand."""

import random

import torch

from drkernel.tasks.oracle import OracleMaker
from drkernel.tasks.sharing import overlap, overlaps_itself, region_of, shared_by


def addresses(tensor):
    places = [tensor.data_ptr()]
    for size, step in zip(tensor.shape, tensor.stride(), strict=True):
        places = [place + k * step * tensor.element_size() for place in places for k in range(size)]
    return places


def test_overlap_is_what_comparing_all_addresses_says():
    rng = random.Random(0)
    base = torch.zeros(64)
    seen = set()
    for _ in range(400):
        views = []
        for _ in range(2):
            shape = [rng.randrange(0, 5) for _ in range(rng.randrange(1, 4))]
            stride = [rng.randrange(0, 6) for _ in shape]
            views.append(torch.as_strided(base, shape, stride, rng.randrange(0, 8)))
        left, right = map(addresses, views)
        itself, other = len(set(left)) < len(left), bool(set(left) & set(right))
        assert overlaps_itself(region_of(views[0])) is itself, (views[0].shape, views[0].stride())
        assert overlap(region_of(views[0]), region_of(views[1])) is other
        seen.add((itself, other))
    assert len(seen) == 4


def test_halves_of_one_buffer_and_interleaved_views_share_nothing():
    buffer, given = torch.zeros(8, 6), torch.zeros(4)
    assert shared_by([buffer[:4], buffer[4:], buffer[0, ::2]], [given]) == {(2, "output", 0)}
    assert shared_by([buffer[:, ::2], buffer[:, 1::2]], [given]) == set()
    assert shared_by([given.expand(3, 4), given[1:]], [given]) == {
        (0, "itself", 0), (0, "input", 0), (1, "output", 0), (1, "input", 0)
    }  # fmt: skip


class Updates(torch.nn.Module):
    def forward(self, x, state, other):
        state.mul_(0.5).add_(x)
        return state.sum(0), x


def test_the_oracle_knows_what_the_reference_changes_and_shares():
    x, state, other = torch.randn(4, 5), torch.randn(4, 5), torch.randn(3)
    oracle = OracleMaker(Updates(), "fp32")([x, state, other])
    assert list(oracle.mutated) == [1] and len(oracle.outputs) == 2
    assert torch.allclose(oracle.mutated[1].value, (state * 0.5 + x).double(), atol=1e-6)
    assert oracle.mutated[1].value.dtype == torch.float64 and oracle.mutated[1].z_operand > 0
    assert oracle.shared == {(1, "input", 0)}
