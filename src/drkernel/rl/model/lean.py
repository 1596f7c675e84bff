"""A lean forward pass for Llama-shaped models (Qwen3, Qwen2, Llama) over the modules of a transformers model.

Two entry points share the layer's arithmetic. :func:`packed_hidden` is differentiable and trains on sequences packed
end to end without padding. :class:`LeanDecoder` keeps keys and values in preallocated memory and spends only a few
microseconds of Python per layer, which decides the speed of a small model on a CPU.

Shape legend: N packed tokens, B cache rows, T new tokens of a row, L tokens in the cache, H query heads, K key/value
heads, G = H / K, D head size, E width of the residual stream, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from drkernel.rl.model.distributed import whole

SUPPORTED = ("qwen3", "qwen2", "llama")
Weights = Literal["same", "bf16"]


def is_supported(config: Any) -> bool:
    """Return whether the lean forward computes the same function as the model of this Hugging Face config."""
    rope = getattr(config, "rope_parameters", None) or getattr(config, "rope_scaling", None) or {}
    kind = rope.get("rope_type", "default") if isinstance(rope, dict) else "default"
    window = getattr(config, "sliding_window", None) if getattr(config, "use_sliding_window", True) else None
    return (
        config.model_type in SUPPORTED
        and kind == "default"
        and window is None
        and getattr(config, "hidden_act", "silu") == "silu"
    )


def head_size(config: Any) -> int:
    """Size of one attention head."""
    return int(getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads)


def rope_tables(config: Any, length: int, device: torch.device | str = "cpu") -> tuple[Tensor, Tensor]:
    """Cosines and sines of rotary positions 0..length-1, [length, D] each, in fp32 (rotate-half convention)."""
    size = head_size(config)
    rope = getattr(config, "rope_parameters", None) or {}
    theta = float(rope["rope_theta"] if "rope_theta" in rope else getattr(config, "rope_theta", 10_000.0))
    frequency = 1.0 / theta ** (torch.arange(0, size, 2, dtype=torch.int64, device=device).float() / size)
    angle = torch.arange(length, device=device).float()[:, None] * frequency[None, :]
    angle = torch.cat((angle, angle), dim=-1)
    return angle.cos(), angle.sin()


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary embedding of ``x`` [..., heads, D] with ``cos``/``sin`` broadcastable to it."""
    half = x.shape[-1] // 2
    turned = torch.cat((-x[..., half:], x[..., :half]), dim=-1)
    return x * cos + turned * sin


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Root-mean-square norm over the last dimension, computed in fp32."""
    if x.dtype == torch.float32:
        return F.rms_norm(x, (x.shape[-1],), weight, eps)
    return weight * F.rms_norm(x.float(), (x.shape[-1],), None, eps).to(x.dtype)


@dataclass(frozen=True)
class Packing:
    """The layout of a packed batch and of its attention.

    Linear layers run over the N packed tokens; only attention runs on a padded view [R, T], where plain causal
    attention cannot cross from one sequence into another.
    """

    lengths: tuple[int, ...]
    positions_N: Tensor
    padded_N: Tensor
    """Index of each packed token in the flattened padded view."""

    @staticmethod
    def of(lengths: Sequence[int], device: torch.device | str = "cpu") -> Packing:
        """Return the packing of sequences of these lengths, in order."""
        width = max(lengths)
        positions = torch.cat([torch.arange(length) for length in lengths])
        padded = torch.cat([torch.arange(length) + row * width for row, length in enumerate(lengths)])
        return Packing(tuple(lengths), positions.to(device), padded.to(device))

    def pad(self, x_NHD: Tensor) -> Tensor:
        """[N, heads, D] -> [R, heads, T, D], zeros in the padding."""
        rows, width = len(self.lengths), max(self.lengths)
        if rows * width == x_NHD.shape[0]:
            out = x_NHD
        else:
            out = x_NHD.new_zeros(rows * width, *x_NHD.shape[1:]).index_copy(0, self.padded_N, x_NHD)
        return out.view(rows, width, *x_NHD.shape[1:]).transpose(1, 2)

    def unpad(self, x_RHTD: Tensor) -> Tensor:
        """Inverse of :meth:`pad`, heads flattened: [R, heads, T, D] -> [N, heads * D]."""
        flat = x_RHTD.transpose(1, 2).flatten(2).flatten(0, 1)
        return flat if flat.shape[0] == self.padded_N.shape[0] else flat.index_select(0, self.padded_N)


def packed_hidden(model: Any, ids_N: Tensor, packing: Packing) -> Tensor:
    """Return the last hidden states [N, E] (after the final norm) of sequences packed end to end; differentiable.

    ``model`` is a transformers causal LM of a supported architecture. Its linear modules are called as modules, so that
    LoRA layers work.
    """
    config, body = model.config, model.get_decoder()
    size, heads, kv = head_size(config), config.num_attention_heads, config.num_key_value_heads
    x_NE = body.embed_tokens(ids_N)
    cos, sin = rope_tables(config, max(packing.lengths), x_NE.device)
    cos = cos[packing.positions_N][:, None, :].to(x_NE.dtype)
    sin = sin[packing.positions_N][:, None, :].to(x_NE.dtype)
    for layer in body.layers:
        attention = layer.self_attn
        h_NE = rms_norm(x_NE, layer.input_layernorm.weight, layer.input_layernorm.variance_epsilon)
        q = attention.q_proj(h_NE).view(-1, heads, size)
        k = attention.k_proj(h_NE).view(-1, kv, size)
        v = attention.v_proj(h_NE).view(-1, kv, size)
        if hasattr(attention, "q_norm"):
            q = rms_norm(q, attention.q_norm.weight, attention.q_norm.variance_epsilon)
            k = rms_norm(k, attention.k_norm.weight, attention.k_norm.variance_epsilon)
        out = F.scaled_dot_product_attention(
            packing.pad(rotate(q, cos, sin)),
            packing.pad(rotate(k, cos, sin)),
            packing.pad(v),
            is_causal=True,
            enable_gqa=heads != kv,
        )
        x_NE = x_NE + attention.o_proj(packing.unpad(out))
        h_NE = rms_norm(x_NE, layer.post_attention_layernorm.weight, layer.post_attention_layernorm.variance_epsilon)
        x_NE = x_NE + layer.mlp.down_proj(F.silu(layer.mlp.gate_proj(h_NE)) * layer.mlp.up_proj(h_NE))
    return rms_norm(x_NE, body.norm.weight, body.norm.variance_epsilon)


def effective_weight(linear: Any) -> Tensor:
    """Return the matrix that a linear module applies, with LoRA merged in."""
    base = linear.get_base_layer() if hasattr(linear, "get_base_layer") else linear
    weight: Tensor = base.weight.detach()
    for name in getattr(linear, "active_adapters", ()):
        weight = weight + linear.get_delta_weight(name).detach().to(weight.dtype)
    return weight


def effective_bias(linear: Any) -> Tensor | None:
    """Return the bias of a linear module, or None."""
    base = linear.get_base_layer() if hasattr(linear, "get_base_layer") else linear
    return None if base.bias is None else base.bias.detach()


@dataclass
class _LeanLayer:
    """One layer's weights, fused for decoding and stored transposed where that is faster."""

    norm1: Tensor
    qkv: Tensor
    qkv_bias: Tensor | None
    q_norm: Tensor | None
    k_norm: Tensor | None
    out: Tensor
    norm2: Tensor
    gate_up: Tensor
    down: Tensor


class LeanDecoder:
    """Incremental decoding with a preallocated cache.

    A *row* of the cache holds one sequence from position 0. Rows ``0..n-1`` are stepped together; the caller keeps the
    live ones at the front with :meth:`move`. The weights are a snapshot: call :meth:`refresh` after an update.
    """

    def __init__(self, model: Any, rows: int, capacity: int, weights: Weights = "same"):
        if not is_supported(model.config):
            raise ValueError(f"the lean decoder does not know the architecture {model.config.model_type!r}")
        self.config = model.config
        self.rows, self.capacity = rows, capacity
        self.heads, self.kv = self.config.num_attention_heads, self.config.num_key_value_heads
        self.size, self.eps = head_size(self.config), float(self.config.rms_norm_eps)
        own = model.get_input_embeddings().weight.dtype
        self.dtype = torch.bfloat16 if weights == "bf16" else own
        self.device = model.get_input_embeddings().weight.device
        shape = (self.config.num_hidden_layers, 2, rows, self.kv, capacity, self.size)
        self.cache = torch.zeros(shape, dtype=self.dtype, device=self.device)
        cos, sin = rope_tables(self.config, capacity, self.device)
        self.cos, self.sin = cos.to(self.dtype), sin.to(self.dtype)
        self.lengths = torch.zeros(rows, dtype=torch.int64, device=self.device)
        self._columns = torch.arange(capacity, device=self.device)
        self.refresh(model)

    @torch.no_grad()
    def refresh(self, model: Any) -> None:
        """Copy the model's current weights (LoRA merged, cast to the decoder's dtype)."""
        body = model.get_decoder()

        def cast(*tensors: Tensor) -> Tensor:
            parts = [whole(tensor.detach()) for tensor in tensors]
            joined = torch.cat(parts) if len(parts) > 1 else parts[0]
            return joined.to(self.dtype, copy=True).contiguous()

        def norm(owner: Any, name: str) -> Tensor | None:
            return cast(getattr(owner, name).weight) if hasattr(owner, name) else None

        self.layers = []
        for layer in body.layers:
            attention, mlp = layer.self_attn, layer.mlp
            projections = (attention.q_proj, attention.k_proj, attention.v_proj)
            biases = [bias for bias in map(effective_bias, projections) if bias is not None]
            self.layers.append(
                _LeanLayer(
                    norm1=cast(layer.input_layernorm.weight),
                    qkv=cast(*map(effective_weight, projections)),
                    qkv_bias=cast(*biases) if biases else None,
                    q_norm=norm(attention, "q_norm"),
                    k_norm=norm(attention, "k_norm"),
                    out=cast(effective_weight(attention.o_proj)),
                    norm2=cast(layer.post_attention_layernorm.weight),
                    gate_up=cast(effective_weight(mlp.gate_proj), effective_weight(mlp.up_proj)),
                    down=cast(effective_weight(mlp.down_proj)),
                )
            )
        self.embedding = cast(model.get_input_embeddings().weight)
        head = model.get_output_embeddings()
        tied = head.weight is model.get_input_embeddings().weight
        self.head = self.embedding if tied else cast(effective_weight(head))
        self.norm = cast(body.norm.weight)

    @torch.no_grad()
    def step(self, tokens_B: Tensor) -> Tensor:
        """Append one token to each of the first B rows; return float32 logits [B, V] of the next one."""
        count = tokens_B.shape[0]
        starts_B = self.lengths[:count]
        longest = int(starts_B.max()) + 1
        if longest > self.capacity:
            raise ValueError(f"a row has reached the cache's capacity of {self.capacity} tokens")
        rows_B = torch.arange(count, device=self.device)
        bias_BL = torch.zeros((count, longest), dtype=self.dtype, device=self.device)
        bias_BL.masked_fill_(self._columns[:longest] > starts_B[:, None], float("-inf"))
        bias_X = bias_BL.repeat_interleave(self.kv, dim=0)[:, None, :]
        cos, sin = self.cos[starts_B][:, None, :], self.sin[starts_B][:, None, :]
        x_BE = self.embedding[tokens_B]
        group = self.heads // self.kv
        for index, layer in enumerate(self.layers):
            q, k, v = self._qkv(layer, x_BE, cos, sin)
            cache = self.cache[index]
            cache[0, rows_B, :, starts_B] = k
            cache[1, rows_B, :, starts_B] = v
            keys = cache[0, :count, :, :longest].flatten(0, 1)
            values = cache[1, :count, :, :longest].flatten(0, 1)
            scores = torch.baddbmm(
                bias_X, q.reshape(count * self.kv, group, self.size), keys.transpose(1, 2), alpha=self.size**-0.5
            )
            out = torch.bmm(torch.softmax(scores, dim=-1), values).view(count, self.heads * self.size)
            x_BE = self._after_attention(layer, x_BE, out)
        self.lengths[:count] += 1
        return F.linear(rms_norm(x_BE, self.norm, self.eps), self.head).float()

    @torch.no_grad()
    def extend(self, rows: Sequence[int], ids: Sequence[Sequence[int]]) -> Tensor:
        """Append several tokens to each of ``rows``; return float32 logits [len(rows), V] after each row's last token.

        Rows must be distinct and every list of ids non-empty.
        """
        if not all(ids):
            raise ValueError("every row needs at least one new token")
        counts = torch.tensor([len(row) for row in ids], device=self.device)
        width = int(counts.max())
        tokens_BT = torch.zeros((len(rows), width), dtype=torch.int64)
        for index, row in enumerate(ids):
            tokens_BT[index, : len(row)] = torch.as_tensor(row)
        rows_B = torch.tensor(list(rows), device=self.device)
        starts_B = self.lengths[rows_B]
        longest = int((starts_B + counts).max())
        if longest > self.capacity:
            raise ValueError(f"{longest} tokens do not fit the cache's capacity of {self.capacity}")
        positions_BT = starts_B[:, None] + torch.arange(width, device=self.device)
        real_BT = torch.arange(width, device=self.device) < counts[:, None]
        clipped_BT = positions_BT.clamp_max(self.capacity - 1)
        mask = (self._columns[:longest] <= positions_BT[..., None])[:, None]
        cos, sin = self.cos[clipped_BT][:, :, None, :], self.sin[clipped_BT][:, :, None, :]
        owner_M, column_M = rows_B[:, None].expand_as(positions_BT)[real_BT], positions_BT[real_BT]
        x = self.embedding[tokens_BT.to(self.device)]
        for index, layer in enumerate(self.layers):
            q, k, v = self._qkv(layer, x, cos, sin)
            cache = self.cache[index]
            cache[0, owner_M, :, column_M] = k[real_BT]
            cache[1, owner_M, :, column_M] = v[real_BT]
            out = F.scaled_dot_product_attention(
                q.transpose(1, 2),
                cache[0, rows_B, :, :longest],
                cache[1, rows_B, :, :longest],
                attn_mask=mask,
                enable_gqa=self.heads != self.kv,
            )
            x = self._after_attention(layer, x, out.transpose(1, 2).flatten(2))
        self.lengths[rows_B] += counts
        last = x[torch.arange(len(rows), device=self.device), counts - 1]
        return F.linear(rms_norm(last, self.norm, self.eps), self.head).float()

    def _qkv(self, layer: _LeanLayer, x: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Rotated queries [..., H, D] and keys, and values [..., K, D], of new tokens."""
        h = rms_norm(x, layer.norm1, self.eps)
        qkv = F.linear(h, layer.qkv, layer.qkv_bias).unflatten(-1, (self.heads + 2 * self.kv, self.size))
        q, k, v = qkv.split((self.heads, self.kv, self.kv), dim=-2)
        if layer.q_norm is not None and layer.k_norm is not None:
            q, k = rms_norm(q, layer.q_norm, self.eps), rms_norm(k, layer.k_norm, self.eps)
        return rotate(q, cos, sin), rotate(k, cos, sin), v

    def _after_attention(self, layer: _LeanLayer, x: Tensor, out: Tensor) -> Tensor:
        """Output projection, MLP and both residuals."""
        x = x + F.linear(out, layer.out)
        gate, up = F.linear(rms_norm(x, layer.norm2, self.eps), layer.gate_up).chunk(2, dim=-1)
        return x + F.linear(F.silu(gate) * up, layer.down)

    def clear(self, row: int) -> None:
        """Empty a row."""
        self.lengths[row] = 0

    def move(self, source: int, target: int) -> None:
        """Copy row ``source`` over row ``target``."""
        length = int(self.lengths[source])
        self.cache[:, :, target, :, :length] = self.cache[:, :, source, :, :length]
        self.lengths[target] = length

    def save(self, row: int) -> Tensor:
        """Return a compact copy of a row's cache."""
        return self.cache[:, :, row, :, : int(self.lengths[row])].clone()

    def load(self, row: int, saved: Tensor) -> None:
        """Restore the return value of :meth:`save` into any row."""
        length = saved.shape[-2]
        self.cache[:, :, row, :, :length] = saved
        self.lengths[row] = length
