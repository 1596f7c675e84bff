"""The policy: a causal language model and its tokenizer, from scratch or from Hugging Face.

Training uses one entry point, :meth:`Policy.statistics`: sequences packed end to end without padding or
cross-contamination, and log-probabilities of the chosen positions only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from drkernel.config import Config, ConfigError
from drkernel.rl.maths.logprobs import TokenStatistics, linear_token_statistics
from drkernel.rl.model import distributed
from drkernel.rl.model.distributed import World
from drkernel.rl.model.lean import LeanDecoder, Packing, Weights, is_supported, packed_hidden
from drkernel.rl.model.sampler import Decoder
from drkernel.rl.model.tokenizer import ChatTokenizer, Split

POCKET = "qwen3-pocket"
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


class PocketConfig(Config):
    """Sizes of ``qwen3-pocket``: the architecture of Qwen3-8B at a size that two CPU cores train in minutes."""

    hidden: int = Field(256, ge=16, description="width of the residual stream")
    layers: int = Field(4, ge=1)
    heads: int = Field(8, ge=1, description="query heads")
    kv_heads: int = Field(2, ge=1, description="key and value heads")
    head_dim: int = Field(32, ge=8)
    mlp: int = Field(768, ge=16, description="width of the gated MLP")
    context: int = Field(1536, ge=64, description="longest sequence in tokens")
    rope_theta: float = Field(10_000.0, gt=0)


class TokenizerConfig(Config):
    """The locally trained tokenizer of a from-scratch model."""

    vocab_size: int = Field(1024, ge=260, description="entries at most, the 256 bytes and 4 marks among them")
    split: Split = Field("line", description="what becomes one token: 'line', 'clause' (up to a comma) or 'code'")


class LoraConfig(Config):
    """Low-rank adapters (needs the peft package)."""

    rank: int = Field(16, ge=1)
    alpha: int = Field(32, ge=1)
    dropout: float = Field(0.0, ge=0, lt=1)
    targets: tuple[str, ...] = Field(("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"))


class PolicyConfig(Config):
    """The model to train, and its arithmetic."""

    model: str = Field(POCKET, description="'qwen3-pocket' or a Hugging Face path or name")
    pocket: PocketConfig = PocketConfig()
    tokenizer: TokenizerConfig = TokenizerConfig()
    dtype: Literal["fp32", "bf16"] = Field("fp32", description="bf16: fp32 master weights, bf16 arithmetic")
    device: str = Field("auto", description="'auto', 'cpu' or 'cuda'")
    lora: LoraConfig | None = None
    checkpoint_activations: bool = Field(False, description="recompute activations in the backward pass: less memory")

    @property
    def from_scratch(self) -> bool:
        """Whether the model is created here rather than loaded."""
        return self.model == POCKET


@dataclass(frozen=True)
class Example:
    """One sequence to compute log-probabilities of."""

    ids: Sequence[int]
    mask: Sequence[bool]
    """True at every id whose log-probability is wanted; False at the first."""


class PolicyModule(nn.Module):
    """The model as one module that maps packed ids to token statistics, so that sharding sees every use of a weight."""

    def __init__(self, model: Any, lean: bool, dtype: torch.dtype):
        super().__init__()
        self.model = model
        self.lean = lean
        self.dtype = dtype

    def forward(
        self,
        ids_N: Tensor,
        packing: Packing,
        before_M: Tensor,
        targets_M: Tensor,
        temperature: float = 1.0,
    ) -> TokenStatistics:
        """Statistics of ``targets_M``, each predicted from the hidden state at ``before_M``."""
        low = self.dtype != torch.float32
        with torch.autocast(ids_N.device.type, dtype=torch.bfloat16, enabled=low):
            core = causal_lm(self.model)
            hidden_NE = packed_hidden(core, ids_N, packing) if self.lean else _packed_by_mask(core, ids_N, packing)
        head = core.get_output_embeddings()
        bias = getattr(head, "bias", None)
        weight = _head_weight(head)
        if low:
            weight, bias = weight.to(self.dtype), None if bias is None else bias.to(self.dtype)
        selected_ME = hidden_NE[before_M].to(weight.dtype)
        found = linear_token_statistics(selected_ME, weight, targets_M, bias_V=bias, temperature=temperature)
        return found._replace(logprobs=found.logprobs.clone())  # sharding must not be handed a view


class Policy:
    """Model and tokenizer, with the two operations on them: :meth:`statistics` and :meth:`make_decoder`."""

    def __init__(self, model: Any, tokenizer: ChatTokenizer, config: PolicyConfig, *, lean: bool | None = None):
        self.model, self.tokenizer, self.config = model, tokenizer, config
        self.device = next(model.parameters()).device
        supported = is_supported(causal_lm(model).config) and not config.checkpoint_activations
        self.lean = supported if lean is None else lean
        self.module = PolicyModule(model, self.lean, DTYPES[config.dtype])
        self.world = World()

    def shard(self, world: World) -> None:
        """Shard the weights over the ranks of ``world``; create the optimiser after this."""
        self.world = world
        if world.size > 1:
            self.lean = self.module.lean = False  # the lean forward reaches past the layers that gather weights
            layers, kind = causal_lm(self.model).get_decoder().layers, pick_device(self.config.device).type
            weights = self.model.state_dict() if world.first else {}
            distributed.shard(self.module, list(layers), kind, low=self.config.dtype == "bf16")
            distributed.spread(self.model, weights)
            self.device = next(self.model.parameters()).device

    @staticmethod
    def from_scratch(config: PolicyConfig, tokenizer: ChatTokenizer, seed: int) -> Policy:
        """Create a new pocket model for this tokenizer."""
        model = make_pocket(config.pocket, len(tokenizer), tokenizer.end_id, tokenizer.pad_id, seed)
        model = model.to(pick_device(config.device))
        return Policy(_with_lora(model, config.lora), tokenizer, config)

    @staticmethod
    def load(config: PolicyConfig, path: str | Path | None = None, world: World | None = None) -> Policy:
        """Load a model and tokenizer saved by :meth:`save`, or any causal LM by path or name (``config.model``).

        In a ``world`` of several ranks the first has the weights, on the host, until :meth:`shard` hands them round.
        Raises :class:`ConfigError` when it cannot be found or read.
        """
        from transformers import AutoConfig, AutoModelForCausalLM

        source, world = str(path or config.model), world or World()
        try:
            model: Any
            if world.first:
                model = AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32)
            else:
                with torch.device("meta"):
                    model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(source), dtype=torch.float32)
                model.to_empty(device="cpu")  # pages that nobody writes take no memory
                model.tie_weights()
            tokenizer = ChatTokenizer.load(source)
        except (OSError, ValueError) as error:
            first = (str(error).splitlines() or [type(error).__name__])[0]
            raise ConfigError(
                f"cannot load model {source!r}: {first}. Give a directory that holds config.json, safetensors and a "
                "tokenizer, a Hugging Face name where the network allows, or 'qwen3-pocket'"
            ) from error
        if config.checkpoint_activations:
            model.gradient_checkpointing_enable()
        place = pick_device(config.device) if world.size == 1 else "cpu"
        return Policy(_with_lora(model.to(place), config.lora), tokenizer, config)

    def save(self, directory: str | Path) -> None:
        """Write model (safetensors; only the adapters under LoRA) and tokenizer in Hugging Face's layout.

        Every rank must call this; the first one writes.
        """
        from transformers.utils import logging

        weights, _ = distributed.full_state(self.model, None, self.world)
        if not self.world.first:
            return
        if self.world.size > 1:  # put together from shards, a shared weight comes under both of its names
            own = {name for name, _ in (*self.model.named_parameters(), *self.model.named_buffers())}
            weights = {name: weight for name, weight in weights.items() if name in own}
        shown = logging.is_progress_bar_enabled()
        logging.disable_progress_bar()
        self.model.save_pretrained(str(directory), state_dict=weights)
        if shown:
            logging.enable_progress_bar()
        self.tokenizer.save(directory)

    def statistics(self, examples: Sequence[Example], temperature: float = 1.0) -> TokenStatistics:
        """Compute statistics of every masked id of every example, in order; log-probabilities are differentiable."""
        lengths = [len(example.ids) for example in examples]
        packing = Packing.of(lengths, self.device)
        ids_N = torch.tensor([i for example in examples for i in example.ids], device=self.device)
        mask_N = torch.tensor([m for example in examples for m in example.mask], device=self.device)
        if mask_N.shape != ids_N.shape:
            raise ValueError("every example needs a mask of its ids' length")
        starts = torch.cumsum(torch.tensor([0, *lengths[:-1]], device=self.device), 0)
        if bool(mask_N[starts].any()):
            raise ValueError("the first id of an example has nothing before it to be predicted from: unmask it")
        chosen_M = mask_N.nonzero()[:, 0]
        statistics: TokenStatistics = self.module(ids_N, packing, chosen_M - 1, ids_N[chosen_M], temperature)
        return statistics

    def make_decoder(self, rows: int, capacity: int, weights: Weights = "same") -> Decoder:
        """Return a decoder over this model's current weights; call its ``refresh(policy.model)`` after updates.

        ``weights``: the trainer's own, or rounded to bf16, as a fast inference engine would use.
        """
        core = causal_lm(self.model)
        limit = getattr(core.config, "max_position_embeddings", None)
        if limit is not None and capacity > limit:
            raise ConfigError(f"a context of {capacity} tokens is more than the model's {limit}")
        self.check_decoder()
        return LeanDecoder(core, rows, capacity, weights)

    def check_decoder(self) -> None:
        """Raise :class:`ConfigError` for an architecture that our own sampler does not know."""
        config = causal_lm(self.model).config
        if not is_supported(config):
            raise ConfigError(
                f"the local sampler does not know the architecture {config.model_type!r} (or its rope or window): "
                "sample with a server, rollout.backend vllm"
            )

    def trainable(self) -> list[nn.Parameter]:
        """Parameters that an optimiser should see."""
        return [parameter for parameter in self.model.parameters() if parameter.requires_grad]

    @property
    def size(self) -> int:
        """Number of parameters."""
        return sum(parameter.numel() for parameter in self.model.parameters())


def causal_lm(model: Any) -> Any:
    """The transformers causal LM inside a possible peft wrapper."""
    return model.get_base_model() if hasattr(model, "get_base_model") else model


def pick_device(name: str) -> torch.device:
    """Resolve a device name; 'auto' is the first CUDA device if there is one, else the CPU."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if name.startswith("cuda") and not torch.cuda.is_available():
        raise ConfigError(f"policy.device is {name!r}, but this machine has no CUDA device; use 'auto' or 'cpu'")
    return torch.device(name)


def microbatches(lengths: Sequence[int], budget: int) -> list[list[int]]:
    """Group sequences of similar length into batches of at most ``budget`` tokens; a longer sequence is alone. Returns
    indices.

    The result depends on the lengths alone, so a resumed run makes the same batches.
    """
    order = sorted(range(len(lengths)), key=lambda index: (lengths[index], index))
    batches: list[list[int]] = []
    filled = 0
    for index in order:
        if not batches or filled + lengths[index] > budget:
            batches.append([])
            filled = 0
        batches[-1].append(index)
        filled += lengths[index]
    return batches


def _packed_by_mask(core: Any, ids_N: Tensor, packing: Packing) -> Tensor:
    """Compute last hidden states of packed sequences for any architecture: one row with a block-diagonal causal
    mask."""
    lengths = torch.tensor(packing.lengths, device=ids_N.device)
    owner_N = torch.repeat_interleave(torch.arange(len(packing.lengths), device=ids_N.device), lengths)
    position_N = torch.arange(len(ids_N), device=ids_N.device)
    allowed = (owner_N[:, None] == owner_N[None, :]) & (position_N[:, None] >= position_N[None, :])
    dtype = core.get_input_embeddings().weight.dtype
    if torch.is_autocast_enabled(ids_N.device.type):
        dtype = torch.get_autocast_dtype(ids_N.device.type)
    bias = torch.zeros(allowed.shape, dtype=dtype, device=ids_N.device).masked_fill_(~allowed, torch.finfo(dtype).min)
    out = core.get_decoder()(
        input_ids=ids_N[None],
        position_ids=packing.positions_N[None],
        attention_mask=bias[None, None],
        use_cache=False,
    )
    hidden_1NH: Tensor = out.last_hidden_state
    return hidden_1NH[0]


def _head_weight(head: Any) -> Tensor:
    weight: Tensor = head.get_base_layer().weight if hasattr(head, "get_base_layer") else head.weight
    return weight


def _with_lora(model: Any, lora: LoraConfig | None) -> Any:
    """Wrap the model in LoRA adapters, or return it unchanged."""
    if lora is None:
        return model
    try:
        import peft
    except ImportError as error:
        raise ConfigError("policy.lora needs the peft package: pip install 'drkernel[lora]'") from error
    terms = peft.LoraConfig(
        r=lora.rank,
        lora_alpha=lora.alpha,
        lora_dropout=lora.dropout,
        target_modules=list(lora.targets),
        task_type="CAUSAL_LM",
    )
    return peft.get_peft_model(model, terms)


def make_pocket(config: PocketConfig, vocab_size: int, end_id: int, pad_id: int, seed: int) -> Any:
    """Return a freshly initialised ``Qwen3ForCausalLM`` in fp32; the seed determines every weight.

    Weights are drawn with standard deviation 0.02 (projections into the residual stream scaled by 1/sqrt(2·layers), as
    GPT-2 does); input and output embeddings are shared.
    """
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
