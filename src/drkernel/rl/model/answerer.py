"""Who samples the policy's answers besides our own decoder: an inference server, or transformers' ``generate``; and
:class:`LocalModel` (``hf:PATH``), which batches calls that arrive at about the same time, for bench, search and cold
start.

``rollout.backend: vllm`` starts a server beside the trainer and loads the new weights into it after every update. It
answers ``/v1/completions`` on a list of ids with ``return_token_ids`` and log-probabilities of the distribution it drew
from. Every load of weights is followed by a check: answers of the server are scored by the policy, and a difference
beyond the server's own rounding ends the run.
vLLM's reload leaves the output head as it was where it is tied to the embedding, so weights are exported untied: the
same function, with the head as a matrix of its own.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from pydantic import Field, ValidationError

from drkernel.config import Config, ConfigError
from drkernel.episode.records import (
    ContextFull,
    ModelCall,
    ModelError,
    Reply,
    Sampling,
)
from drkernel.gym.sandbox import linux
from drkernel.rl.model.lean import is_supported
from drkernel.rl.model.policy import Example, Policy, PolicyConfig, causal_lm
from drkernel.rl.model.sampler import (
    Conversation,
    RequestSampler,
    SampledTurn,
    Sampler,
    SamplerAnswerer,
    SamplingConfig,
)
from drkernel.rl.model.tokenizer import ChatTokenizer

WAIT_S = 600.0
"""How long a server may take to answer one request."""
PROBES, PROBE_TOKENS = 4, 32
"""Answers of the check after a load, and tokens of each."""
AT_MOST = 0.05
"""Nats: the mean difference of a token's log-probability at which a server does not serve this policy at all."""


class ServerConfig(Config):
    """The vLLM server that ``rollout.backend: vllm`` starts."""

    python: str = Field("python", description="interpreter of an environment that has vllm (docs/training.md)")
    dtype: Literal["float32", "bfloat16"] = Field("bfloat16", description="of the served weights and cache")
    memory: float = Field(0.4, gt=0, lt=1, description="share of its device's memory; the trainer may need the rest")
    args: tuple[str, ...] = Field((), description="further arguments of vLLM's server")
    start_s: float = Field(1200.0, gt=0, description="seconds that it may take to load the model and answer")


def export_untied(policy: Policy, directory: Path) -> None:
    """Write model and tokenizer for a server, with an output head of its own where the model ties it."""
    from safetensors.torch import save_file

    core = causal_lm(policy.model)
    if core is not policy.model:
        raise ConfigError("rollout.backend: adapters (policy.lora) are sampled by the local backend alone")
    state = {name: value.detach().to("cpu").contiguous() for name, value in core.state_dict().items()}
    state["lm_head.weight"] = core.get_output_embeddings().weight.detach().to("cpu").clone()
    own = {"tie_word_embeddings": False, "architectures": [type(core).__name__]}
    config = type(core.config)(**{**core.config.to_dict(), **own})
    directory.mkdir(parents=True, exist_ok=True)
    save_file(state, str(directory / "model.safetensors"), metadata={"format": "pt"})
    config.save_pretrained(str(directory))
    policy.tokenizer.save(directory)


class PolicyServer:
    """A running inference server that serves one model."""

    def __init__(self, url: str, place: Path):
        """``place`` is where weights for it are exported."""
        import httpx

        self.url, self.place = url.rstrip("/"), place
        self.process: subprocess.Popen[bytes] | None = None
        self.usual: float | None = None
        """Mean difference of log-probabilities at the first check, nats: the server's rounding."""
        self.client = httpx.Client(timeout=WAIT_S)
        self.name = ""

    @staticmethod
    def start(config: ServerConfig, policy: Policy, place: Path, context: int) -> PolicyServer:
        """Export the policy and start vLLM on it. Raises :class:`ConfigError` with the end of its log on failure."""
        export_untied(policy, place)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        command = [config.python, "-m", "vllm.entrypoints.openai.api_server", "--model", str(place)]
        command += ["--served-model-name", "policy", "--host", "127.0.0.1", "--port", str(port)]
        command += ["--max-model-len", str(context), "--dtype", config.dtype]
        command += ["--gpu-memory-utilization", str(config.memory)]  # of a CPU's memory too
        command += ["--logprobs-mode", "processed_logprobs", *config.args]
        if shutil.which(config.python) is None:
            raise ConfigError(f"rollout.server.python {config.python!r}: no such program")
        log = place / "server.log"
        server = PolicyServer(f"http://127.0.0.1:{port}", place)
        with open(log, "wb") as file:
            known = {**os.environ, "VLLM_SERVER_DEV_MODE": "1"}
            server.process = subprocess.Popen(
                linux.bound(command), env=known, stdout=file, stderr=file, start_new_session=True
            )
        server.wait(config.start_s, log)
        return server

    def wait(self, seconds: float = WAIT_S, log: Path | None = None) -> None:
        """Wait until the server answers, and learn its model's name."""
        import httpx

        until = time.monotonic() + seconds
        while time.monotonic() < until:
            if self.process is not None and self.process.poll() is not None:
                break
            try:
                answer = self.client.get(f"{self.url}/v1/models")
                if answer.status_code == 200:
                    self.name = str(answer.json()["data"][0]["id"])
                    return
            except httpx.TransportError:
                pass
            time.sleep(0.5)
        self.close()
        said = f"; its log is {log}{_cause(log.read_text(errors='replace'))}" if log is not None else ""
        raise ConfigError(f"rollout.backend: no model is served at {self.url}{said}")

    def load(self, policy: Policy) -> None:
        """Put the policy's present weights into the server."""
        export_untied(policy, self.place)
        call = {"method": "reload_weights", "kwargs": {"weights_path": str(self.place.absolute())}}
        self.client.post(f"{self.url}/collective_rpc", json=call).raise_for_status()
        self.client.post(f"{self.url}/reset_prefix_cache").raise_for_status()

    def check(self, policy: Policy, sampling: SamplingConfig) -> float:
        """Return the mean difference between the server's log-probabilities and the policy's, in nats.

        Raises :class:`ConfigError` when the server does not serve these weights.
        """
        prompt = policy.tokenizer.prompt_ids("Write a kernel.")
        room = min(PROBE_TOKENS, sampling.max_tokens)
        drawn = []
        for seed in range(PROBES):
            body = request_body(self.name, prompt, room, sampling, seed, policy.tokenizer.end_id)
            answer = self.client.post(f"{self.url}/v1/completions", json=body)
            drawn.append(read_choice(answer.raise_for_status().json()))
        examples = [Example(prompt + list(ids), [False] * len(prompt) + [True] * len(ids)) for ids, _ in drawn]
        with torch.no_grad():
            own = policy.statistics(examples, sampling.temperature or 1.0).logprobs.float().cpu()
        heard = torch.tensor([value for _, values in drawn for value in values])
        gap = float((own - heard).abs().mean())
        bound = AT_MOST if self.usual is None else min(AT_MOST, 4 * self.usual + 2e-3)
        # with top-p the server's are those of the truncated distribution: the policy's may only be smaller
        if sampling.top_p == 1 and gap > bound:
            raise ConfigError(
                f"rollout.backend: the server at {self.url} does not serve the present weights: its log-probabilities "
                f"are {gap:.2g} nats a token from the policy's (at most {bound:.2g} expected)"
            )
        self.usual = gap if self.usual is None else self.usual
        return gap

    def close(self) -> None:
        """Stop the server, if it was started here."""
        if self.process is not None and self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGTERM)
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                os.killpg(self.process.pid, signal.SIGKILL)
                self.process.wait()
        self.client.close()


def _cause(log: str) -> str:
    """Return the first exception that a log names, which is what the later ones come from; else its end."""
    named = re.search(r"^.*?\b(\w*(?:Error|Exception): \S.*)$", log, re.MULTILINE)
    return f"\n{named[1][:1000] if named else log[-1500:]}"


def request_body(name: str, ids: list[int], room: int, sampling: SamplingConfig, seed: int, end: int) -> dict[str, Any]:
    """Return the body of ``/v1/completions`` for one answer of at most ``room`` tokens after ``ids``."""
    return {
        "model": name,
        "prompt": ids,
        "max_tokens": room,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "min_p": 0.0,
        "top_k": -1,
        "seed": seed,
        "logprobs": 0,
        "return_token_ids": True,
        "stop_token_ids": [end],
        "skip_special_tokens": False,
    }


def read_choice(answer: dict[str, Any]) -> tuple[tuple[int, ...], tuple[float, ...]]:
    """Return ids and log-probabilities of an answer. Raises :class:`ConfigError` when the server gives none."""
    choice = answer["choices"][0]
    ids = choice.get("token_ids")
    logprobs = (choice.get("logprobs") or {}).get("token_logprobs")
    if not isinstance(ids, list) or not isinstance(logprobs, list) or len(ids) != len(logprobs):
        raise ConfigError(
            "rollout.backend: the server returned no token ids with their log-probabilities; vLLM's does "
            "(return_token_ids), and training needs them"
        )
    return tuple(map(int, ids)), tuple(map(float, logprobs))


class ServedSampler(RequestSampler):
    """Samples with a server of our own trainer's."""

    def __init__(self, server: PolicyServer, tokenizer: ChatTokenizer, config: SamplingConfig, capacity: int):
        super().__init__(tokenizer, config, capacity)
        self.server = server
        self._client: Any = None

    async def stream(
        self, conversations: Sequence[Conversation], appends: Sequence[Sequence[int]], *, keep_cache: bool = True
    ) -> AsyncIterator[tuple[int, SampledTurn]]:
        """As :meth:`RequestSampler.stream`, over connections of its own."""
        import httpx

        async with httpx.AsyncClient(timeout=WAIT_S) as self._client:
            async for index, turn in super().stream(conversations, appends, keep_cache=keep_cache):
                yield index, turn

    async def ask(self, ids: list[int], room: int, seed: int) -> tuple[tuple[int, ...], tuple[float, ...]]:
        """Return what the server draws."""
        body = request_body(self.server.name, ids, room, self.config, seed, self.tokenizer.end_id)
        answer = await self._client.post(f"{self.server.url}/v1/completions", json=body)
        return read_choice(answer.raise_for_status().json())


# ---- Answerers backed by a causal language model in this process: ids in, ids out, never re-tokenised


GATHER_S = 0.02
"""How long the first call of a batch waits for others."""


class GenerateSampler(RequestSampler):
    """Samples with transformers' ``generate``, one answer at a time: slow, and right for any causal language model."""

    def __init__(self, policy: Policy, config: SamplingConfig, capacity: int):
        super().__init__(policy.tokenizer, config, capacity)
        self.model = causal_lm(policy.model)
        if config.stop_at_fence:
            raise ConfigError(f"stop_at_fence: not for the architecture {self.model.config.model_type!r}")

    async def ask(self, ids: list[int], room: int, seed: int) -> tuple[tuple[int, ...], tuple[float, ...]]:
        """Return what ``generate`` draws with this seed."""
        from transformers import GenerationConfig

        config, device = self.config, self.model.get_input_embeddings().weight.device
        cuts = {"temperature": config.temperature, "top_p": config.top_p, "top_k": 0}
        terms = GenerationConfig(
            max_new_tokens=room,
            do_sample=config.temperature > 0,
            eos_token_id=self.tokenizer.end_id,
            pad_token_id=self.tokenizer.pad_id,
            output_scores=True,
            return_dict_in_generate=True,
            **(cuts if config.temperature > 0 else {}),
        )
        read = torch.tensor([ids], device=device)
        with torch.no_grad(), torch.random.fork_rng():
            torch.manual_seed(seed)
            out = self.model.generate(read, attention_mask=torch.ones_like(read), generation_config=terms)
        drawn = out.sequences[0, len(ids) :]
        logprobs = torch.log_softmax(torch.cat(out.scores).float(), dim=-1).gather(1, drawn[:, None])[:, 0]
        await asyncio.sleep(0)
        return tuple(drawn.tolist()), tuple(logprobs.tolist())


class LocalTerms(Config):
    """Settings that ``extra`` accepts for a local model."""

    rows: int = Field(16, ge=1, description="conversations decoded together")
    context: int | None = Field(None, ge=64, description="longest conversation; None takes the model's, 8192 at most")
    stop_at_fence: bool = Field(False, description="end an answer where its code block is closed")
    device: str = Field("auto", description="'auto', 'cpu' or 'cuda'")


@dataclass
class _Waiting:
    call: ModelCall
    conversation: Conversation
    future: asyncio.Future[Reply]


class LocalModel:
    """``hf:PATH``: draws up to ``rows`` answers together.

    Raises :class:`ConfigError` when the model cannot be loaded or ``sampling.extra`` holds an unknown setting.
    """

    def __init__(self, path: str, sampling: Sampling = Sampling(), *, policy: Policy | None = None):
        try:
            terms = LocalTerms.model_validate(sampling.extra)
        except ValidationError as error:
            item = error.errors()[0]
            known = ", ".join(LocalTerms.model_fields)
            raise ConfigError(
                f"hf: models take {known} as extra; {'.'.join(map(str, item['loc']))}: {item['msg']}"
            ) from None
        self.name = f"hf:{path}"
        self._sampling = sampling
        loaded = policy or Policy.load(PolicyConfig(model=path, device=terms.device))
        limit = getattr(causal_lm(loaded.model).config, "max_position_embeddings", None) or 8192
        self.context = terms.context or min(limit, 8192)
        config = SamplingConfig(
            temperature=1.0 if sampling.temperature is None else sampling.temperature,
            top_p=1.0 if sampling.top_p is None else sampling.top_p,
            max_tokens=min(sampling.max_tokens, self.context),
            stop_at_fence=terms.stop_at_fence,
            rows=terms.rows,
        )
        sampler: Sampler | RequestSampler
        if is_supported(causal_lm(loaded.model).config):
            sampler = Sampler(loaded.make_decoder(terms.rows, self.context), loaded.tokenizer, config)
        else:
            sampler = GenerateSampler(loaded, config, self.context)
        self._answerer = SamplerAnswerer(sampler, loaded.tokenizer, name=self.name, keep_reasoning=False)
        self._waiting: list[_Waiting] = []
        self._worker: asyncio.Task[None] | None = None

    async def complete(self, call: ModelCall) -> Reply:
        """Answer one call, batched with the calls that are waiting at the same time."""
        if call.sampling != self._sampling:
            raise ModelError(f"{self.name} was opened for other sampling terms than the call's")
        length = len(self._answerer.context_ids(call))
        if length >= self.context:
            raise ContextFull(f"{length} tokens do not fit the context of {self.context}")
        seed = int.from_bytes(os.urandom(6), "little") if call.seed is None else call.seed
        future: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Waiting(call, Conversation(seed=seed), future))
        if self._worker is None or self._worker.done():
            self._worker = asyncio.create_task(self._work())
        return await future

    async def _work(self) -> None:
        """Sample batches until no call is waiting; an exception goes to every waiting call."""
        await asyncio.sleep(GATHER_S)
        while self._waiting:
            batch, self._waiting = self._waiting, []
            batch = [waiting for waiting in batch if not waiting.future.done()]
            loop = asyncio.get_running_loop()
            started = loop.time()
            calls, conversations = [waiting.call for waiting in batch], [waiting.conversation for waiting in batch]
            try:
                async for index, reply in self._answerer.stream(calls, conversations, keep_cache=False):
                    if not batch[index].future.done():
                        seconds = loop.time() - started
                        batch[index].future.set_result(reply.model_copy(update={"seconds": seconds}))
            except Exception as error:
                for waiting in batch:
                    if not waiting.future.done():
                        waiting.future.set_exception(ModelError(f"sampling failed: {type(error).__name__}: {error}"))

    async def close(self) -> None:
        """Stop sampling."""
        if self._worker is not None:
            self._worker.cancel()
