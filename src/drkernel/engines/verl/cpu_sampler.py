"""FSDP on the CPU, and our own sampler as verl's rollout server there, which samples while the trainer trains."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass
from typing import Any

import torch
from verl.checkpoint_engine.base import CheckpointEngine, CheckpointEngineRegistry
from verl.workers.engine.base import EngineRegistry
from verl.workers.engine.fsdp.transformer_impl import FSDPEngineWithLMHead
from verl.workers.rollout import base as rollout_base
from verl.workers.rollout.replica import RolloutReplica, RolloutReplicaRegistry, TokenOutput

from drkernel.rl.model.policy import Policy, PolicyConfig
from drkernel.rl.model.sampler import Conversation, SampledTurn, Sampler, SamplingConfig

ROLLOUT = "drkernel"
"""``actor_rollout_ref.rollout.name`` of the sampler below."""
GATHER_S = 0.02
"""How long the first request of a batch waits for others."""


@dataclass
class _Request:
    conversation: Conversation
    ids: list[int]
    terms: tuple[float, float]
    """temperature and top-p"""
    future: asyncio.Future[SampledTurn]


class CpuServer:
    """One model that answers what verl's client asks for; requests of about the same time are sampled together."""

    def __init__(self, path: str, context: int, rows: int, seed: int):
        torch.set_num_threads(1)
        self.policy = Policy.load(PolicyConfig(model=path, device="cpu"))
        self.context, self.rows, self.seed = context, rows, seed
        self.decoder = self.policy.make_decoder(rows, context)
        self.asked = 0
        self.steps: int | None = None
        self.waiting: list[_Request] = []
        self.worker: asyncio.Task[None] | None = None

    async def generate(
        self, request_id: str, prompt_ids: list[int], sampling_params: dict[str, Any], **unused: Any
    ) -> TokenOutput:
        """Draw one answer after ``prompt_ids``."""
        self.asked += 1
        room = min(int(sampling_params["max_tokens"]), self.context - len(prompt_ids))
        conversation = Conversation(self.seed * 1_000_003 + self.asked, budget=room)
        terms = (float(sampling_params["temperature"]), float(sampling_params.get("top_p", 1.0)))
        future: asyncio.Future[SampledTurn] = asyncio.get_running_loop().create_future()
        self.waiting.append(_Request(conversation, list(prompt_ids), terms, future))
        if self.worker is None or self.worker.done():
            self.worker = asyncio.create_task(self._work())
        turn = await future
        return TokenOutput(
            token_ids=list(turn.token_ids),
            log_probs=list(turn.logprobs),
            stop_reason="completed" if turn.stop == "end" else "length",
            extra_fields={"global_steps": self.steps},
        )

    async def _work(self) -> None:
        await asyncio.sleep(GATHER_S)
        while self.waiting:
            terms = self.waiting[0].terms
            batch = [request for request in self.waiting if request.terms == terms]
            self.waiting = [request for request in self.waiting if request.terms != terms]
            config = SamplingConfig(
                temperature=terms[0], top_p=terms[1], max_tokens=self.context, stop_at_fence=False, rows=self.rows
            )
            sampler = Sampler(self.decoder, self.policy.tokenizer, config)
            try:
                conversations = [request.conversation for request in batch]
                async for index, turn in sampler.stream(conversations, [r.ids for r in batch], keep_cache=False):
                    batch[index].future.set_result(turn)
            except Exception as error:
                for request in batch:
                    if not request.future.done():
                        request.future.set_exception(error)

    async def load(self, items: list[tuple[str, torch.Tensor]], steps: int | None) -> None:
        """Take over new weights. Raises ``KeyError`` for a weight that the model does not have."""
        state = self.policy.model.state_dict()
        with torch.no_grad():
            for name, value in items:
                state[name].copy_(value)
        self.decoder.refresh(self.policy.model)
        self.steps = steps

    async def ready(self) -> bool:
        """Answer once the model is loaded."""
        return True

    async def wake_up(self, *args: Any, **kwargs: Any) -> None:
        """Nothing sleeps here: the memory is the machine's own."""

    sleep = abort_all_requests = resume_generation = clear_kv_cache = wake_up
    release_kv_cache = resume_kv_cache = start_profile = stop_profile = wake_up


class Replica(RolloutReplica):
    """Starts the server."""

    async def launch_servers(self) -> None:
        import ray

        name = f"{ROLLOUT}_server_{self.replica_rank}_0"
        path = self.model_config["path"] if hasattr(self.model_config, "get") else self.model_config.path
        terms = (int(self.config.max_model_len), int(self.config.max_num_seqs), int(self.config.seed))
        options = {"name": name, "num_cpus": 0, "max_concurrency": 1000}
        server: Any = ray.remote(CpuServer).options(**options).remote(os.path.expanduser(path), *terms)
        await server.ready.remote()
        self.servers, self._server_handle, self._server_address = [server], server, name


class Adapter(rollout_base.BaseRollout):
    """Sends the trainer's weights to the server."""

    def __init__(self, config: Any, model_config: Any, device_mesh: Any, replica_rank: int = -1):
        super().__init__(config, model_config, device_mesh)
        self.rank = int(os.environ["RANK"])

    async def resume(self, tags: Any) -> None:
        """Nothing to resume."""

    async def release(self) -> None:
        """Nothing to release."""

    async def update_weights(self, weights: Any, global_steps: int | None = None, **unused: Any) -> None:
        """Gather the weights on every rank; the first one sends them to the server."""
        await _send(weights, self.rank == 0, global_steps)


@CheckpointEngineRegistry.register(ROLLOUT)
class Transfer(CheckpointEngine):
    """The same where verl has the sampler receive what it sends: nothing is to be connected."""

    def __init__(self, is_master: bool = False, **unused: Any):
        self.first = is_master

    def prepare(self) -> dict[str, Any]:
        return {}

    @classmethod
    def build_topology(cls, *args: Any, **kwargs: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        return {}, {}

    def init_process_group(self, **kwargs: Any) -> None:
        return None

    finalize = init_process_group

    async def send_weights(self, weights: Any, global_steps: int | None = None) -> None:
        await _send(weights, self.first, global_steps)

    def receive_weights(self, global_steps: int | None = None) -> tuple[()]:
        """The server has them."""
        return ()


async def _send(weights: Any, first: bool, global_steps: int | None) -> None:
    import ray

    items = [(name, value.detach().to("cpu", torch.float32)) for name, value in weights]
    if first and items:
        await ray.get_actor(f"{ROLLOUT}_server_0_0").load.remote(items, global_steps)


@EngineRegistry.register(model_type="language_model", backend=["fsdp", "fsdp2"], device="cpu")
class CpuEngine(FSDPEngineWithLMHead):
    """FSDP on the CPU."""

    def _build_fsdp_module(self, module: Any) -> Any:
        """verl has a reference wait in pinned memory beside a GPU; without one nothing can be pinned."""
        only, self.engine_config.forward_only = self.engine_config.forward_only, False
        module = super()._build_fsdp_module(module)
        self.engine_config.forward_only = only
        return module


RolloutReplicaRegistry.register(ROLLOUT, lambda: Replica)
rollout_base._ROLLOUT_REGISTRY[(ROLLOUT, "async")] = f"{Adapter.__module__}.{Adapter.__name__}"
