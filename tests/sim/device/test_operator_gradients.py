"""Operators whose gradients, lengths or places CUDA computes by kernels of its own: against the processor."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from drkernel import sim


def _rand(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(len(shape)))


def _bags(x: torch.Tensor, **options: Any) -> torch.Tensor:
    indices, offsets = torch.tensor([4, 1, 1, 5, 0, 2, 2, 3]), torch.tensor([0, 3, 3, 7])
    return functional.embedding_bag(indices.to(x.device), x, offsets.to(x.device), **options)


def _packed(x: torch.Tensor) -> torch.Tensor:
    layer = torch.nn.LSTM(3, 4, batch_first=True).to(x.device)
    for value in layer.parameters():
        torch.nn.init.constant_(value, 0.3)
    sequences = pack_padded_sequence(
        x.reshape(3, 2, 3), torch.tensor([1, 2, 2]), batch_first=True, enforce_sorted=False
    )
    assert sequences.data.device == x.device and sequences.batch_sizes.tolist() == [3, 2]
    return pad_packed_sequence(layer(sequences)[0], batch_first=True)[0]


BACKWARDS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    **{f"embedding_bag {mode}": lambda x, mode=mode: _bags(x, mode=mode) for mode in ("sum", "mean", "max")},
    "embedding_bag counted": lambda x: _bags(x, mode="sum", padding_idx=1, scale_grad_by_freq=True),
    "embedding_bag scales": lambda x: _bags(x.detach(), mode="sum", per_sample_weights=x.reshape(-1)[:8]),
    **{f"cdist {p}": lambda x, p=p: torch.cdist(x[:2], x[2:], p=p) for p in (1.0, 2.0, 3.0, math.inf)},
    "pdist": functional.pdist,
    **{
        f"segment_reduce {reduce}": lambda x, reduce=reduce: torch.segment_reduce(
            x, reduce, lengths=torch.tensor([1, 3, 2]).to(x.device)
        )
        for reduce in ("sum", "mean", "max", "min", "prod")
    },
    "ctc": lambda x: functional.ctc_loss(
        x.reshape(6, 1, 3).log_softmax(2), torch.tensor([[1, 2]]).to(x.device), torch.tensor([6]), torch.tensor([2])
    ),
    "ctc by lengths of the device": lambda x: functional.ctc_loss(
        x.reshape(3, 2, 3).log_softmax(2), *(torch.tensor(n).to(x.device) for n in ([[1], [2]], [3, 3], [1, 1]))
    ),
    "packed sequences": _packed,
    "padding that takes a whole side away": lambda x: functional.pad(x[None, None], (-3, 4, 2, -6), mode="replicate"),
    "windows of a number": lambda x: x.sum().unfold(0, 1, 2),
    "strides of a copy": lambda x: torch.as_strided_copy(x, (2, 2), (1, 3), 1),
}


@pytest.mark.parametrize("name", BACKWARDS)
def test_gradients_of_bags_distances_segments_and_sequences_are_those_of_the_processor(name: str) -> None:
    def gradient(x: torch.Tensor) -> list[torch.Tensor]:
        result = BACKWARDS[name](x)
        return [result.detach().cpu(), *(g.cpu() for g in torch.autograd.grad((result * result.cos()).sum(), [x]))]

    wanted = gradient(_rand(6, 3).requires_grad_())
    with sim.device("h100"):
        given = gradient(_rand(6, 3).cuda().requires_grad_())
    torch.testing.assert_close(given, wanted)


def test_places_of_flat_indices(dev: sim.SimDevice) -> None:
    x = _rand(4, 5).cuda()
    places = torch.unravel_index(x.argmax(), x.shape)
    assert x[places].item() == x.max().item() and places[0].is_cuda
    assert [place.tolist() for place in torch.unravel_index(torch.tensor([3, 11]).cuda(), (4, 5))] == [
        [0, 2],
        [3, 1],
    ]
