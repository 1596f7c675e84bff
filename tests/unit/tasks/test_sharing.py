"""Memory shared by tensors, against every pair of elements compared by hand."""

import random

import torch

from drkernel.tasks.correctness import compare
from drkernel.tasks.oracle import OracleMaker, tolerance_for
from drkernel.tasks.sharing import TensorMemory, overlap, overlaps_itself, region_of, shared_by


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


def test_large_views_are_compared_whole_and_expanded_ones_without_their_repeats():
    buffer = torch.zeros(3 << 21)
    windows = buffer.as_strided(((3 << 20) - 4, 8), (2, 1))
    assert overlaps_itself(region_of(windows)) and not overlaps_itself(region_of(buffer.view(-1, 8)))
    queries, keys, values = buffer.view(-1, 3).unbind(1)
    assert shared_by([queries, keys, values], []) == set()
    repeated = buffer[::2].expand(1 << 30, -1)
    assert overlaps_itself(region_of(repeated)) and not overlap(region_of(repeated), region_of(buffer[1::2]))
    assert overlap(region_of(repeated), region_of(buffer[2:4]))


class Updates(torch.nn.Module):
    def forward(self, x, state, other):
        state.mul_(0.5).add_(x)
        return state.sum(0), x


def test_the_oracle_knows_what_the_reference_changes_and_shares():
    x, state, other = torch.randn(4, 5), torch.randn(4, 5), torch.randn(3)
    oracle = OracleMaker(Updates(), "fp32")([x, state, other])
    assert list(oracle.mutated) == [1] and len(oracle.outputs) == 2
    (after,) = oracle.mutated[1].outputs
    assert torch.allclose(after.value, (state * 0.5 + x).double(), atol=1e-6)
    assert after.value.dtype == torch.float64 and after.z_operand > 0
    assert oracle.shared == {(1, "input", 0)}


class WritesAProduct(torch.nn.Module):
    def forward(self, a, b, c):
        c.copy_(a @ b)
        return a.sum(1)


def test_an_argument_that_is_changed_is_held_against_its_own_sums_and_noise():
    torch.manual_seed(0)
    a, b, c = (torch.randn(64, 64) for _ in range(3))
    oracle, rule = OracleMaker(WritesAProduct(), "fp32")([a, b, c]), tolerance_for("fp32")
    after = oracle.mutated[2]
    (ordered,), want = after.in_order(0.0), after.outputs[0]
    assert torch.allclose(ordered, a @ b, atol=1e-4) and not torch.equal(ordered, want.declared)
    assert bool((after.wider(after, 1).outputs[0].noise >= want.noise).all())
    exact = want.value.float()
    assert compare([exact], after, rule).passed_calls
    rough = exact * (1 + 3e-6 * torch.randn(64, 64))  # within every element's tolerance, not as accurate as fp32
    assert not compare([rough], after, rule).passed_calls


def test_views_spread_over_all_of_a_card_are_refused_without_looking_at_all_of_it():
    """Two elements at both ends of 64 GiB: a map of what lies between would be larger than the judge."""
    far = 1 << 36
    left, right = (TensorMemory(0, place, (2,), (far - 10,), 1) for place in (0, 5))
    assert overlap(left, right) and overlaps_itself(TensorMemory(0, 0, (2, 2), (far, 0), 1))
    assert not overlap(left, TensorMemory(0, far + 64, (2,), (far,), 1))  # one ends before the other begins
