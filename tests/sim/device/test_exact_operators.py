"""PyTorch's operators on exact values: an operator equals the same function written in others, element for element."""

import time

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from drkernel.sim.exact.machine import ExactMachine, Sources, Watched, form_of, without_onednn
from drkernel.sim.wire.frames import digest_of
from ttir_executor.exact.field import Field
from ttir_executor.exact.values import compare


def evaluated(function, *tensors):
    """A function's result on tensors of independent variables, in the same field for the same tensors."""
    field = Field(5)
    sources = Sources(field)
    machine = ExactMachine(field, sources, time.thread_time() + 20)
    given = [tensor.clone() for tensor in tensors]
    for tensor in given:
        sources.give(tensor)
        machine.give(form_of(tensor), digest_of(tensor), tensor)
    with torch.no_grad(), without_onednn(), Watched(machine) as watched:
        result = function(*given)
        watched.alive.append(result)
    return machine.read(form_of(result)), result


def drawn(*shapes):
    torch.manual_seed(3)
    return [torch.randn(shape) for shape in shapes]


def by_columns(x, w):
    columns = F.unfold(x, 3, padding=1, stride=2)
    return (w.reshape(w.shape[0], -1) @ columns).reshape(x.shape[0], w.shape[0], 3, 3)


def group_norm_by_hand(x):
    groups = x.reshape(2, 2, -1)
    centred = groups - groups.mean(-1, keepdim=True)
    return (centred / ((centred * centred).mean(-1, keepdim=True) + 1e-5).sqrt()).reshape(x.shape)


def attention_by_hand(q, k, v):
    weights = torch.exp(q @ k.transpose(-1, -2) * 0.5)
    return (weights @ v) / weights.sum(-1, keepdim=True)


def in_place(x):
    y = x.clone()
    y[:, ::2].mul_(3)
    y.t()[1].add_(1)
    return y


def out_of_place(x):
    even = (torch.arange(6) % 2 == 0).float()
    y = x * (1 + 2 * even)
    return torch.cat([y[:, :1], y[:, 1:2] + 1, y[:, 2:]], dim=1)


def made_elsewhere(x):
    """Results that operators write to what they are given for that, and to arguments of which no schema says so."""
    values, places = torch.zeros(4, 6), torch.zeros(4, 6, dtype=torch.int64)
    torch.sort(x, -1, out=(values, places))
    mean, variance = torch.zeros(6), torch.ones(6)
    F.batch_norm(x, mean, variance, training=True, momentum=0.5)
    turned = values.t().contiguous()
    turned.t_()
    return turned + mean * variance


def made_by_returning(x):
    return torch.sort(x, -1).values + 0.5 * x.mean(0) * (0.5 + 0.5 * x.var(0))


SAME = {
    "convolution": (lambda x, w: F.conv2d(x, w, padding=1, stride=2), by_columns, (2, 3, 5, 5), (4, 3, 3, 3)),
    "group_norm": (lambda x: F.group_norm(x, 2), group_norm_by_hand, (2, 4, 6)),
    "layer_norm": (lambda x: F.layer_norm(x, (4, 6)), lambda x: F.group_norm(x, 1), (2, 4, 6)),
    "average_pool": (lambda x: F.avg_pool2d(x, 2), lambda x: x.unfold(2, 2, 2).unfold(3, 2, 2).mean((-1, -2)),
                     (1, 2, 4, 6)),
    "max_pool": (lambda x: F.max_pool2d(x, 2), lambda x: x.unfold(2, 2, 2).unfold(3, 2, 2).amax((-1, -2)),
                 (1, 2, 4, 6)),
    "attention": (lambda q, k, v: F.scaled_dot_product_attention(q, k, v), attention_by_hand, *[(1, 2, 5, 4)] * 3),
    "shared keys": (lambda q, k, v: F.scaled_dot_product_attention(q, k, v, enable_gqa=True), lambda q, k, v:
                    attention_by_hand(q, *(x.repeat_interleave(2, 1) for x in (k, v))), (1, 4, 5, 4),
                    *[(1, 2, 5, 4)] * 2),
    "linear": (F.linear, lambda x, w, b: torch.einsum("nk,mk->nm", x, w) + b, (5, 4), (3, 4), (3,)),
    "cumsum": (lambda x: x.cumsum(1), lambda x: x @ torch.ones(6, 6).triu(), (3, 6)),
    "softplus": (lambda x: torch.tanh(F.softplus(x)), lambda x: 1 - 2 / ((1 + torch.exp(x)) ** 2 + 1), (3, 6)),
    "moves": (lambda x: x.flip(0).roll(1, 1).tril(), lambda x: torch.tril(torch.roll(torch.flip(x, (0,)), -5, 1)),
              (6, 6)),
    "views in place": (in_place, out_of_place, (4, 6)),
    "made elsewhere": (made_elsewhere, made_by_returning, (4, 6)),
}  # fmt: skip
OTHER = {
    "convolution of another stride": (lambda x, w: F.conv2d(x, w, padding=1)[..., ::2, ::2], lambda x, w: by_columns(
        x, w * 1.000001), (2, 3, 5, 5), (4, 3, 3, 3)),
    "eps": (lambda x: F.group_norm(x, 2, eps=1e-6), group_norm_by_hand, (2, 4, 6)),
    "last key": (F.scaled_dot_product_attention, lambda q, k, v: attention_by_hand(q, k[:, :, :-1], v[:, :, :-1]),
                 *[(1, 2, 5, 4)] * 3),
}  # fmt: skip


@pytest.mark.parametrize("one, other, shapes", [(f, g, s) for f, g, *s in SAME.values()], ids=SAME)
def test_two_forms_of_a_function_are_equal(one, other, shapes):
    tensors = drawn(*shapes)
    (left, floats), (right, others) = evaluated(one, *tensors), evaluated(other, *tensors)
    assert compare(left, right).equal.all()
    torch.testing.assert_close(floats, others)
    torch.testing.assert_close(torch.tensor(left.full().f).float().reshape(floats.shape), floats)


@pytest.mark.parametrize("one, other, shapes", [(f, g, s) for f, g, *s in OTHER.values()], ids=OTHER)
def test_another_function_is_nowhere_equal(one, other, shapes):
    tensors = drawn(*shapes)
    found = compare(evaluated(one, *tensors)[0], evaluated(other, *tensors)[0])
    assert not found.equal.any() and found.unequal.all()


ORDERS = ([0, 2, 3], [2, 0, 3])


@pytest.mark.parametrize(("pick", "sure"), [
    (lambda x: x.topk(3).values, False), (lambda x: x.sort(dim=-1, stable=True, descending=True).values[:, :3], True),
])  # fmt: skip
def test_another_of_equal_elements_is_no_evidence_where_any_will_do(pick, sure):
    x = torch.tensor([[3.0, 1.0, 3.0, 2.0]])
    picked = evaluated(pick, x)[0]
    first, last = (compare(picked, evaluated(lambda x, at: x[:, at], x, torch.tensor(at))[0]) for at in ORDERS)
    assert first.equal.all() and last.equal.tolist() == [[False, False, True]]
    assert last.differ.tolist() == [[sure, sure, False]]


@pytest.mark.parametrize("repeated", [True, False])
def test_elements_that_are_equal_in_both_draws_are_one_variable(repeated):
    """Halves that are always equal, as RoPE's angles are; not zeros and ones, which are equal by chance."""

    def drawn():
        return torch.randn(8, 16).repeat(1, 2) if repeated else torch.randint(0, 2, (8, 32)).float()

    torch.manual_seed(0)
    sources, tensor = Sources(Field(1)), drawn()
    sources.give(tensor, drawn())
    left, right = np.split(sources.of(digest_of(tensor)).full().a, 2, axis=1)
    assert bool((left == right).all()) == repeated
