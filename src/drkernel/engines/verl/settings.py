"""The ``verl`` section of a recipe: machines, how weights and sampler are split over them, and verl's own keys."""

from __future__ import annotations

from typing import Any

from pydantic import Field, ValidationError

from drkernel.config import Config, ConfigError


class VerlSettings(Config):
    """How a recipe is laid out on a cluster."""

    nodes: int = Field(1, ge=1, description="machines that train")
    gpus: int = Field(8, ge=1, description="GPUs of each that train and sample; those of the judge are not among them")
    judge_gpus: int = Field(0, ge=0, description="GPUs of `drkernel serve`, elsewhere; for the estimate of time")
    judge_rate: float = Field(0.5, gt=0, description="evaluations a second and GPU of the judge, for the estimate")
    gpu_memory: float = Field(80e9, gt=0, description="bytes of one GPU, for the estimate")
    gpu_flops: float = Field(300e12, gt=0, description="FLOP/s that one GPU reaches in training, for the estimate")
    gpu_bandwidth: float = Field(2e12, gt=0, description="bytes/s that one GPU reaches in decoding, for the estimate")
    sampler_parallel: int = Field(1, ge=1, description="GPUs that one copy of the sampler is split over")
    sampler_memory: float = Field(0.6, gt=0, lt=1, description="share of a GPU's memory that the sampler may take")
    sampler: str = Field("vllm", description="verl's name of the sampler: vllm or sglang; on a CPU it is our own")
    sequence_parallel: int = Field(1, ge=1, description="GPUs that share one sequence in training (Ulysses)")
    offload: bool = Field(False, description="keep weights and optimiser in the host's memory between their uses")
    workers: int = Field(8, ge=1, description="processes that play episodes")
    save_every: int = Field(20, ge=-1, description="steps between checkpoints; -1 saves none")
    extra: dict[str, Any] = Field(
        default_factory=dict, description="further keys of verl by dotted name, applied last; unknown ones are errors"
    )


def settings_of(section: dict[str, Any]) -> VerlSettings:
    """Read a recipe's ``verl`` section. Raises :class:`ConfigError` naming the key."""
    try:
        return VerlSettings.model_validate(section)
    except ValidationError as error:
        item = error.errors()[0]
        raise ConfigError(f"verl.{'.'.join(map(str, item['loc']))}: {item['msg']}") from None
