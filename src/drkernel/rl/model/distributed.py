"""One run on several devices of a machine: started by ``torchrun``, weights sharded with FSDP2, work divided by rank.

Every rank draws the same plan, plays its own share of the trajectories, and receives all of them before it learns, so
advantages and denominators are those of the whole batch. Losses are sums with a global denominator, so the gradient
equals that of a single process, whatever the number of ranks.
"""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True)
class World:
    """The participating ranks. With a single rank every method is a no-op or returns its argument."""

    rank: int = 0
    size: int = 1

    @property
    def first(self) -> bool:
        """Whether this rank writes files and logs."""
        return self.rank == 0

    def share(self, parts: Sequence[T]) -> list[tuple[T, bool]]:
        """Return this rank's parts, and for each whether it counts.

        Ranks that would have fewer parts than others repeat one that does not count: sharded forward passes must be
        made by all ranks together.
        """
        if not parts:
            return []
        rounds = -(-len(parts) // self.size)
        places = [round_ * self.size + self.rank for round_ in range(rounds)]
        return [(parts[place], True) if place < len(parts) else (parts[0], False) for place in places]

    def gather(self, items: Sequence[T]) -> list[T]:
        """Return the items of every rank, in order of rank, on every rank."""
        if self.size == 1:
            return list(items)
        out: list[Any] = [None] * self.size
        dist.all_gather_object(out, list(items))
        return [item for part in out for item in part]

    def sum(self, value: float) -> float:
        """Return the sum over ranks."""
        if self.size == 1:
            return value
        total = torch.tensor(value, dtype=torch.float64)
        dist.all_reduce(total)
        return float(total)

    def sum_tensor(self, value: Tensor) -> Tensor:
        """Sum a CPU tensor over ranks, in place."""
        if self.size > 1:
            dist.all_reduce(value)
        return value

    def agree(self, value: R) -> R:
        """Return the first rank's value on every rank, for decisions that depend on a clock or a signal."""
        if self.size == 1:
            return value
        box = [value]
        dist.broadcast_object_list(box, src=0)
        return box[0]

    def first_does(self, action: Callable[[], None]) -> None:
        """Run ``action`` on the first rank while the others wait."""
        if self.first:
            action()
        if self.size > 1:
            dist.barrier()


def local_rank() -> int:
    """This rank's number on its machine, by which it takes its card."""
    return int(os.environ.get("LOCAL_RANK", "0"))


def start() -> World:
    """Join the process group that ``torchrun`` started; return the single-rank world without one."""
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if size == 1:
        return World()
    if not dist.is_initialized():
        gpu = torch.cuda.is_available()
        if gpu:
            torch.cuda.set_device(local_rank())
        card = torch.device("cuda", local_rank()) if gpu else None  # else NCCL guesses one, and barriers may hang
        # the others wait while the first rank makes cold-start data
        backend = "cpu:gloo,cuda:nccl" if gpu else "gloo"
        dist.init_process_group(backend, timeout=timedelta(hours=24), device_id=card)
    return World(dist.get_rank(), size)


def stop(world: World) -> None:
    """Leave the process group."""
    if world.size > 1 and dist.is_initialized():
        dist.destroy_process_group()


def shard(module: nn.Module, layers: Sequence[nn.Module], kind: str, low: bool) -> None:
    """Shard a module's parameters over all ranks' devices of a kind, layer by layer; ``low`` computes in bf16 over fp32
    shards."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    mesh = init_device_mesh(kind, (dist.get_world_size(),))
    terms: dict[str, Any] = {"mesh": mesh}
    if low:
        terms["mp_policy"] = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for layer in layers:
        fully_shard(layer, **terms)
    fully_shard(module, **terms)


def spread(model: nn.Module, weights: Any) -> None:
    """Fill a sharded model with the first rank's whole ``weights`` and buffers; the others' are not looked at."""
    from torch.distributed.checkpoint.state_dict import StateDictOptions, set_model_state_dict

    options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)
    set_model_state_dict(model, weights, options=options)
    for buffer in model.buffers():
        dist.broadcast(buffer, src=0)


def whole(tensor: Tensor) -> Tensor:
    """Return a sharded tensor assembled (a collective: all ranks must call), or a plain tensor unchanged."""
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


def full_state(model: nn.Module, optimizer: torch.optim.Optimizer | None, world: World) -> tuple[Any, Any]:
    """Return assembled state dicts of model and optimiser on the CPU, on the first rank; all ranks must call."""
    if world.size == 1:
        return model.state_dict(), None if optimizer is None else optimizer.state_dict()
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict, get_optimizer_state_dict

    options = StateDictOptions(full_state_dict=True, cpu_offload=True)
    weights = get_model_state_dict(model, options=options)
    moments = None if optimizer is None else get_optimizer_state_dict(model, optimizer, options=options)
    return weights, moments


def load_full_state(model: nn.Module, optimizer: torch.optim.Optimizer | None, weights: Any, moments: Any) -> None:
    """Load assembled state dicts into a sharded model and optimiser; every rank passes the same."""
    from torch.distributed.checkpoint.state_dict import StateDictOptions, set_model_state_dict, set_optimizer_state_dict

    options = StateDictOptions(full_state_dict=True, strict=False)
    set_model_state_dict(model, weights, options=options)
    if optimizer is not None and moments is not None:
        set_optimizer_state_dict(model, optimizer, moments, options=options)
