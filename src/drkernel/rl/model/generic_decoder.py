"""Incremental decoding for any causal LM of transformers: the model's own forward over our cache.

Slower than :class:`drkernel.rl.model.lean.LeanDecoder`, but it needs no knowledge of the architecture except that the
model takes a 4-D attention mask, position ids and a cache object. The constructor tests whether the model handles them
correctly.

Shape legend: B rows, T new tokens of a row, L tokens in the cache, K key/value heads, D head size, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache

from drkernel.config import ConfigError


class _RowCache(Cache):
    """A cache in preallocated rows: stores new keys and values at given positions and returns the first L of given
    rows."""

    def __init__(self, rows: int, capacity: int):
        super().__init__(layers=[])
        self.rows, self.capacity = rows, capacity
        self.store: list[Tensor] = []
        """[2, rows, K, capacity, D] a layer"""
        self.rows_B = torch.arange(0)
        self.positions_BT = torch.zeros((0, 0), dtype=torch.int64)
        self.real_BT = torch.zeros((0, 0), dtype=torch.bool)
        self.longest = 0

    def aim(self, rows_B: Tensor, positions_BT: Tensor, real_BT: Tensor, longest: int) -> None:
        """Set where the next forward's tokens belong."""
        self.rows_B, self.positions_BT, self.real_BT, self.longest = rows_B, positions_BT, real_BT, longest

    def update(self, key_states: Tensor, value_states: Tensor, layer_idx: int, *_: Any, **__: Any) -> Any:
        """Store new keys and values [B, K, T, D]; return everything in the rows, [B, K, L, D] each."""
        while len(self.store) <= layer_idx:
            shape = (2, self.rows, key_states.shape[1], self.capacity, key_states.shape[-1])
            self.store.append(key_states.new_zeros(shape))
        store = self.store[layer_idx]
        owner_M = self.rows_B[:, None].expand_as(self.positions_BT)[self.real_BT]
        column_M = self.positions_BT[self.real_BT]
        store[0, owner_M, :, column_M] = key_states.transpose(1, 2)[self.real_BT]
        store[1, owner_M, :, column_M] = value_states.transpose(1, 2)[self.real_BT]
        return store[0, self.rows_B, :, : self.longest], store[1, self.rows_B, :, : self.longest]

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Return 0: positions are passed explicitly and must not be derived from the cache."""
        return 0


class GenericDecoder:
    """The interface of :class:`~drkernel.rl.model.lean.LeanDecoder` over any transformers model; copies no weights."""

    def __init__(self, model: Any, rows: int, capacity: int):
        self.model, self.rows, self.capacity = model, rows, capacity
        self.device = model.get_input_embeddings().weight.device
        self.lengths = torch.zeros(rows, dtype=torch.int64, device=self.device)
        self.cache = _RowCache(rows, capacity)
        self._columns = torch.arange(capacity, device=self.device)
        self._try_out()

    def refresh(self, model: Any) -> None:
        """Use this model from now on."""
        self.model = model

    @torch.no_grad()
    def extend(self, rows: Sequence[int], ids: Sequence[Sequence[int]]) -> Tensor:
        """Append several tokens to each of ``rows``; return float32 logits [len(rows), V] after each row's last
        token."""
        if not all(ids):
            raise ValueError("every row needs at least one new token")
        counts_B = torch.tensor([len(row) for row in ids], device=self.device)
        tokens_BT = torch.zeros((len(rows), int(counts_B.max())), dtype=torch.int64, device=self.device)
        for index, row in enumerate(ids):
            tokens_BT[index, : len(row)] = torch.as_tensor(row, device=self.device)
        return self._forward(torch.tensor(list(rows), device=self.device), tokens_BT, counts_B)

    @torch.no_grad()
    def step(self, tokens_B: Tensor) -> Tensor:
        """Append one token to each of the first B rows; return float32 logits [B, V]."""
        rows_B = torch.arange(len(tokens_B), device=self.device)
        return self._forward(rows_B, tokens_B.to(self.device)[:, None], torch.ones_like(rows_B))

    def _forward(self, rows_B: Tensor, tokens_BT: Tensor, counts_B: Tensor) -> Tensor:
        starts_B = self.lengths[rows_B]
        longest = int((starts_B + counts_B).max())
        if longest > self.capacity:
            raise ValueError(f"{longest} tokens do not fit the cache's capacity of {self.capacity}")
        steps_T = torch.arange(tokens_BT.shape[1], device=self.device)
        positions_BT = starts_B[:, None] + steps_T
        self.cache.aim(rows_B, positions_BT, steps_T < counts_B[:, None], longest)
        dtype = self.model.get_input_embeddings().weight.dtype
        hidden_BTL = self._columns[:longest] > positions_BT[..., None]
        bias = torch.zeros(hidden_BTL.shape, dtype=dtype, device=self.device)
        bias.masked_fill_(hidden_BTL, torch.finfo(dtype).min)
        out = self.model(
            input_ids=tokens_BT,
            attention_mask=bias[:, None],
            position_ids=positions_BT.clamp_max(self.capacity - 1),
            past_key_values=self.cache,
            use_cache=True,
        )
        self.lengths[rows_B] += counts_B
        logits_BV: torch.Tensor = out.logits[torch.arange(len(rows_B), device=self.device), counts_B - 1]
        return logits_BV.float()

    def clear(self, row: int) -> None:
        """Empty a row."""
        self.lengths[row] = 0

    def move(self, source: int, target: int) -> None:
        """Copy row ``source`` over row ``target``."""
        length = int(self.lengths[source])
        for store in self.cache.store:
            store[:, target, :, :length] = store[:, source, :, :length]
        self.lengths[target] = length

    def save(self, row: int) -> Tensor:
        """Return a compact copy of a row's cache, [layers, 2, K, L, D]."""
        length = int(self.lengths[row])
        return torch.stack([store[:, row, :, :length] for store in self.cache.store])

    def load(self, row: int, saved: Tensor) -> None:
        """Restore the return value of :meth:`save` into any row."""
        length = saved.shape[-2]
        for store, part in zip(self.cache.store, saved, strict=True):
            store[:, row, :, :length] = part
        self.lengths[row] = length

    @torch.no_grad()
    def _try_out(self) -> None:
        """Compare a few tokens with the model's plain forward; raise for models that decode wrongly this way."""
        vocab = self.model.get_input_embeddings().weight.shape[0]
        ids = [(7 * k + 3) % vocab for k in range(min(6, self.capacity))]
        was_training = self.model.training
        self.model.eval()
        expected = self.model(input_ids=torch.tensor([ids], device=self.device), use_cache=False).logits[0, -1].float()
        self.extend([0], [ids[:-1]]) if len(ids) > 1 else None
        found = self.step(torch.tensor(ids[-1:], device=self.device))[0]
        self.clear(0)
        self.model.train(was_training)
        tolerance = 1e-3 if expected.dtype == torch.float32 and self.cache.store[0].dtype == torch.float32 else 0.3
        if not torch.allclose(found, expected, atol=tolerance * float(expected.abs().max().clamp_min(1.0))):
            raise ConfigError(
                f"sampling does not know the architecture {self.model.config.model_type!r}: its cached forward gives "
                "other log-probabilities than its plain one"
            )
