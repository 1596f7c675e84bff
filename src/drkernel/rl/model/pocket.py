"""``qwen3-pocket``: a Qwen3 model of a few million parameters, initialised from scratch.

It takes the same code path as Qwen3-8B (RMS norms, rotary positions, grouped queries with normalised heads, gated MLP),
at a size that two CPU cores train in minutes.
"""

from __future__ import annotations

from typing import Any

from pydantic import Field

from drkernel.config import Config


class PocketConfig(Config):
    """Sizes of a from-scratch Qwen3."""

    hidden: int = Field(256, ge=16, description="width of the residual stream")
    layers: int = Field(4, ge=1)
    heads: int = Field(8, ge=1, description="query heads")
    kv_heads: int = Field(2, ge=1, description="key and value heads")
    head_dim: int = Field(32, ge=8)
    mlp: int = Field(768, ge=16, description="width of the gated MLP")
    context: int = Field(1536, ge=64, description="longest sequence in tokens")
    rope_theta: float = Field(10_000.0, gt=0)


def make_pocket(config: PocketConfig, vocab_size: int, end_id: int, pad_id: int, seed: int) -> Any:
    """Return a freshly initialised ``Qwen3ForCausalLM`` in fp32; the seed determines every weight.

    Weights are drawn with standard deviation 0.02 (projections into the residual stream scaled by 1/sqrt(2·layers), as
    GPT-2 does); input and output embeddings are shared.
    """
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    hf = Qwen3Config(
        vocab_size=vocab_size,
        hidden_size=config.hidden,
        intermediate_size=config.mlp,
        num_hidden_layers=config.layers,
        num_attention_heads=config.heads,
        num_key_value_heads=config.kv_heads,
        head_dim=config.head_dim,
        max_position_embeddings=config.context,
        rope_parameters={"rope_type": "default", "rope_theta": config.rope_theta},
        tie_word_embeddings=True,
        attention_dropout=0.0,
        bos_token_id=None,
        eos_token_id=end_id,
        pad_token_id=pad_id,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Qwen3ForCausalLM(hf).float()
        generator = torch.Generator().manual_seed(seed)
        for name, parameter in model.named_parameters():
            if parameter.dim() < 2:
                continue
            std = 0.02
            if name.endswith(("o_proj.weight", "down_proj.weight")):
                std /= (2 * config.layers) ** 0.5
            with torch.no_grad():
                parameter.normal_(0.0, std, generator=generator)
    return model
