"""Sampling by a server: ids as drawn, log-probabilities of the training forward, new weights that really arrive.

The server is a real HTTP server that samples with our own decoder behind vLLM's routes. Figures of vLLM itself are in
docs/results/engines.md.
"""

import asyncio
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from drkernel.config import ConfigError
from drkernel.episode.episode import Episode, EpisodeConfig
from drkernel.rl.maths.mismatch import mismatch
from drkernel.rl.model.answerer import (
    PolicyServer,
    ServedSampler,
    ServerConfig,
    export_untied,
    read_choice,
)
from drkernel.rl.model.policy import Policy, PolicyConfig
from drkernel.rl.model.sampler import Conversation, Sampler, SamplerAnswerer, SamplingConfig
from drkernel.rl.run.learner import Learner, LearnerConfig, Rows
from drkernel.rl.run.rollout import Rollout, plan_jobs
from drkernel.rl.run.trainer import Run
from drkernel.task import Task
from fakes import FakePool, tiny_recipe
from tiny import POCKET, prompt, tiny_policy, tiny_tokenizer

torch.set_num_threads(1)
SAMPLING = SamplingConfig(temperature=0.8, max_tokens=20, rows=8, stop_at_fence=False)


class FakeVllm:
    """vLLM's routes over our own sampler. ``keeps_head``: a reload forgets the output head, as vLLM's if it is tied."""

    def __init__(self, policy, keeps_head=False, ids=True):
        self.policy, self.keeps_head, self.ids, self.asked, self.loads = policy, keeps_head, ids, [], 0
        self.lock = threading.Lock()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                self.answer({"data": [{"id": "policy"}]})

            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or b"{}")
                with outer.lock:
                    self.answer(outer.post(self.path, body))

            def answer(self, found):
                data = json.dumps(found).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *args):
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_address[1]}"
        threading.Thread(target=self.http.serve_forever, daemon=True).start()

    def post(self, path, body):
        if path == "/collective_rpc":
            self.reload(body["kwargs"]["weights_path"])
        if path != "/v1/completions":
            return {}
        self.asked.append(body)
        terms = {name: body[name] for name in ("temperature", "top_p", "max_tokens")}
        config = SamplingConfig(**terms, stop_at_fence=False)
        sampler = Sampler(
            self.policy.make_decoder(1, self.policy.model.config.max_position_embeddings), self.policy.tokenizer, config
        )
        (turn,) = sampler.sample([Conversation(body["seed"])], [body["prompt"]])
        found = {"logprobs": {"token_logprobs": list(turn.logprobs)}}
        return {"choices": [{**found, "token_ids": list(turn.token_ids)} if self.ids else found]}

    def reload(self, place):
        self.loads += 1
        new = load_file(f"{place}/model.safetensors")
        head, core = new.pop("lm_head.weight"), self.policy.model
        before = core.lm_head.weight.detach().clone()
        core.load_state_dict(new, strict=False)
        core.lm_head.weight = torch.nn.Parameter(before if self.keeps_head else head)

    def close(self):
        self.http.shutdown()


@pytest.fixture
def vllm():
    made = []

    def start(policy, **options):
        made.append(FakeVllm(policy, **options))
        return made[-1]

    yield start
    for server in made:
        server.close()


def connect(fake, place=Path("unused")):
    server = PolicyServer(fake.url, place)
    server.wait()
    return server


def play(sampler, tokenizer, count=3):
    task = Task(id="t", reference="class Model: pass")
    terms = EpisodeConfig(turns=2, prompts="compact")
    rollout = Rollout(SamplerAnswerer(sampler, tokenizer), lambda: Episode(FakePool(), terms))
    return asyncio.run(rollout.play(plan_jobs([task, task], count, 3))), rollout


def disturbed(policy, scale):
    """The policy after an update."""
    g = torch.Generator().manual_seed(9)
    with torch.no_grad():
        for weight in policy.model.parameters():
            weight += scale * torch.randn(weight.shape, generator=g)


def test_turns_are_ids_as_the_server_drew_them_with_the_policys_log_probabilities(vllm):
    policy = tiny_policy()
    server = connect(vllm(tiny_policy()))
    found, rollout = play(ServedSampler(server, policy.tokenizer, SAMPLING, 256), policy.tokenizer)
    assert [len(t.turns) for t in found] == [2] * 6 and rollout.stats.tokens == sum(
        x.tokens for t in found for x in t.turns
    )
    for trajectory in found:
        first, second = (turn.sampled for turn in trajectory.turns)
        assert second.context_ids[: len(first.context_ids + first.token_ids)] == first.context_ids + first.token_ids
    rows = Rows.of(found)
    learner = Learner(policy, torch.optim.SGD(policy.model.parameters(), lr=0.0), LearnerConfig(), temperature=0.8)
    with torch.no_grad():
        old, _, _ = learner._score(policy, rows)
    gap = mismatch(old, rows.rollout_BT, rows.mask_BT, sequence_B=rows.owner_B)
    assert gap.metrics["max_abs_log_ratio"] < 1e-4 and bool(gap.keep_BT.any())
    server.close()


def test_draws_depend_on_seed_and_turn_alone_and_budgets_are_kept(vllm):
    fake = vllm(tiny_policy())
    server, tokenizer = connect(fake), tiny_policy().tokenizer
    ids = tokenizer.prompt_ids(prompt("alpha"))

    async def draw(seed, budget=None, capacity=256):
        sampler = ServedSampler(server, tokenizer, SAMPLING, capacity)
        ((_, turn),) = [found async for found in sampler.stream([Conversation(seed, budget=budget)], [ids])]
        return turn

    first, again, other = (asyncio.run(draw(seed)) for seed in (1, 1, 2))
    assert first == again and first.token_ids != other.token_ids
    assert len(asyncio.run(draw(1, budget=3)).token_ids) <= 3
    assert fake.asked[-1]["max_tokens"] == 3 and fake.asked[-1]["prompt"] == ids
    full = asyncio.run(draw(1, capacity=len(ids)))
    assert full.token_ids == () and full.stop == "context"
    server.close()


def test_new_weights_arrive_and_are_checked(vllm, tmp_path):
    policy = tiny_policy()
    server = connect(vllm(tiny_policy()), tmp_path / "served")
    assert server.check(policy, SAMPLING) < 1e-5
    disturbed(policy, 0.05)
    with pytest.raises(ConfigError, match="does not serve the present weights"):
        server.check(policy, SAMPLING)
    server.load(policy)
    assert server.check(policy, SAMPLING) < 1e-5
    server.close()


def test_a_reload_that_leaves_the_head_as_it_was_is_noticed(vllm, tmp_path):
    policy = tiny_policy()
    server = connect(vllm(tiny_policy(), keeps_head=True), tmp_path / "served")
    server.check(policy, SAMPLING)
    disturbed(policy, 0.05)
    server.load(policy)
    with pytest.raises(ConfigError, match="does not serve the present weights"):
        server.check(policy, SAMPLING)
    server.close()


def test_an_export_is_the_same_function_with_a_head_of_its_own(tmp_path):
    policy = tiny_policy()
    export_untied(policy, tmp_path)
    again = Policy.load(PolicyConfig(model=str(tmp_path), device="cpu"))
    assert policy.model.config.tie_word_embeddings and not again.model.config.tie_word_embeddings
    ids = torch.tensor([[5, 6, 7, 8]])
    with torch.no_grad():
        assert torch.equal(policy.model(ids).logits, again.model(ids).logits)


def test_what_a_server_cannot_do_is_said(vllm):
    silent = connect(vllm(tiny_policy(), ids=False))
    with pytest.raises(ConfigError, match="no token ids"):
        silent.check(tiny_policy(), SAMPLING)
    silent.close()
    with pytest.raises(ConfigError, match="no token ids"):
        read_choice({"choices": [{"token_ids": [1, 2], "logprobs": {"token_logprobs": [0.0]}}]})


def test_a_server_that_does_not_start_is_said_with_the_first_cause_in_its_log(tmp_path):
    program = tmp_path / "python"
    program.write_text(
        "#!/bin/sh\necho '(Worker) ERROR [core.py:1] ValueError: no memory for this'\n"
        "echo 'RuntimeError: initialization failed, see above'\nexit 1\n"
    )
    program.chmod(0o755)
    with pytest.raises(ConfigError, match=r"server\.log\nValueError: no memory for this$"):
        PolicyServer.start(ServerConfig(python=str(program)), tiny_policy(), tmp_path / "served", 256)
    with pytest.raises(ConfigError, match=r"rollout\.server\.python.*no such program"):
        PolicyServer.start(ServerConfig(python=str(tmp_path / "none")), tiny_policy(), tmp_path / "served", 256)


@pytest.mark.parametrize("staleness", [0, 1])
def test_a_run_samples_and_evaluates_with_its_server_alone(vllm, tmp_path, monkeypatch, staleness):
    fakes = []

    def start(config, policy, place, context):
        export_untied(policy, place)
        fakes.append(vllm(Policy.load(PolicyConfig(model=str(place), device="cpu"))))
        return connect(fakes[-1], place)

    monkeypatch.setattr(PolicyServer, "start", staticmethod(start))
    monkeypatch.setattr("drkernel.rl.run.reinforce.Sampler", lambda *_: pytest.fail("our own sampler"))
    sampling = {"max_tokens": 20, "rows": 8, "stop_at_fence": False}
    terms = PolicyConfig(pocket=POCKET.model_copy(update={"context": 2048}), device="cpu")
    Policy.from_scratch(terms, tiny_tokenizer(), 0).save(tmp_path / "start")
    recipe = tiny_recipe(
        tmp_path, policy={"model": str(tmp_path / "start")}, coldstart_file=None, copying=None, sft=None,
        rl={"steps": 2, "learner": {"lr": 0.003, "weight_decay": 10}},
        rollout={"tasks": 2, "samples": 2, "context": 2048, "backend": "vllm", "sampling": sampling,
                 "staleness": staleness},
        evaluation={"every": 1, "tasks": 2, "samples": 1, "final_tasks": 2, "final_samples": 1},
    )  # fmt: skip
    asyncio.run(Run(recipe, FakePool()).run())
    directory = Path(recipe.runs) / recipe.name
    evaluations = [json.loads(line) for line in (directory / "eval.jsonl").read_text().splitlines()]
    assert [(row["step"], row["label"]) for row in evaluations] == [(0, "before"), (1, "during"), (2, "after")]
    steps = [json.loads(line) for line in (directory / "metrics.jsonl").read_text().splitlines()]
    learned = [row for row in steps if row["stage"] == "rl"]
    assert [row["lag"] for row in learned] == [0, staleness]
    assert [row["mismatch/max_abs_log_ratio"] < 1e-4 for row in learned] == [True, not staleness], learned
    assert fakes[0].loads == 2  # once an update, whoever asks first
