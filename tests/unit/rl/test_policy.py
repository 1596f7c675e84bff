import json

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from drkernel.config import ConfigError
from drkernel.rl.model.policy import LoraConfig, PocketConfig, Policy, PolicyConfig, make_pocket, pick_device
from drkernel.rl.model.sampler import Conversation, Sampler, SamplingConfig
from drkernel.rl.run.optimizers import make_optimizer
from drkernel.rl.run.sft import SftConfig, encode_conversation, sft_step
from drkernel.rl.run.sitting import Checkpoints
from fakes import FakePool, tiny_recipe
from tiny import WORDS, answer, prompt, tiny_policy


def examples(policy):
    return [
        encode_conversation(
            policy.tokenizer, [{"role": "user", "content": prompt(w)}, {"role": "assistant", "content": answer(w)}]
        )
        for w in WORDS
    ]


def test_seeds_decide_every_weight_of_a_new_model():
    config = PocketConfig(hidden=32, layers=2, heads=4, kv_heads=2, head_dim=8, mlp=64, context=64)
    torch.manual_seed(1)
    one = make_pocket(config, 300, 3, 0, seed=5)
    after = torch.rand(1)
    torch.manual_seed(1)
    assert torch.equal(torch.rand(1), after)  # and nobody else's draws
    two = make_pocket(config, 300, 3, 0, seed=5)
    other = make_pocket(config, 300, 3, 0, seed=6)
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), two.parameters(), strict=True))
    assert not torch.equal(one.lm_head.weight, other.lm_head.weight)
    assert one.lm_head.weight is one.model.embed_tokens.weight


def test_a_saved_policy_gives_the_same_log_probabilities(tmp_path):
    policy = tiny_policy()
    policy.save(tmp_path)
    again = Policy.load(PolicyConfig(model=str(tmp_path), device="cpu"))
    with torch.no_grad():
        assert torch.equal(policy.statistics(examples(policy)).logprobs, again.statistics(examples(again)).logprobs)


def test_the_temperature_reaches_the_log_probabilities():
    policy = tiny_policy()
    example = examples(policy)[:1]
    with torch.no_grad():
        logits = policy.model(torch.tensor([example[0].ids])).logits[0, :-1]
        wanted = torch.tensor(example[0].ids[1:])
        mask = torch.tensor(example[0].mask[1:])
        expected = torch.log_softmax(logits / 0.5, -1).gather(1, wanted[:, None])[:, 0][mask]
        torch.testing.assert_close(policy.statistics(example, temperature=0.5).logprobs, expected, atol=1e-5, rtol=1e-5)


def test_bf16_keeps_full_precision_weights_and_stays_close():
    exact, low = tiny_policy(), tiny_policy(dtype="bf16")
    with torch.no_grad():
        a, b = exact.statistics(examples(exact)).logprobs, low.statistics(examples(low)).logprobs
    assert next(low.model.parameters()).dtype == torch.float32
    assert 0 < float((a - b).abs().max()) < 0.1
    optimizer = make_optimizer(low, 1e-3, 0.0)
    losses = [sft_step(low, optimizer, examples(low), 1e-2, SftConfig())["loss"] for _ in range(4)]
    assert losses[-1] < losses[0]


def test_models_that_cannot_be_had_are_named(tmp_path):
    with pytest.raises(ConfigError, match="cannot load model"):
        Policy.load(PolicyConfig(model=str(tmp_path / "nothing"), device="cpu"))
    if not torch.cuda.is_available():
        with pytest.raises(ConfigError, match="no CUDA device"):
            pick_device("cuda:0")
    with pytest.raises(ConfigError, match="more than the model's 350"):
        tiny_policy().make_decoder(2, 1000)


@pytest.fixture
def pretrained(tmp_path):
    """A directory as a published model would be, of an architecture without a chat template."""
    policy = tiny_policy()
    policy.tokenizer.hf.chat_template = None
    vocab = len(policy.tokenizer)
    config = LlamaConfig(
        vocab_size=vocab,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=512,
    )
    torch.manual_seed(0)
    LlamaForCausalLM(config).save_pretrained(tmp_path / "model")
    policy.tokenizer.save(tmp_path / "model")
    return tmp_path / "model"


class TestLora:
    @pytest.fixture(autouse=True)
    def _peft(self):
        pytest.importorskip("peft")

    def load(self, path):
        return Policy.load(PolicyConfig(model=str(path), device="cpu", lora=LoraConfig(rank=4)))

    def test_only_adapters_train_and_sampling_uses_them(self, pretrained):
        policy = self.load(pretrained)
        assert policy.lean and 0 < sum(p.numel() for p in policy.trainable()) < 0.5 * policy.size
        base = policy.model.get_base_model().lm_head.weight.clone()
        optimizer = make_optimizer(policy, 1e-2, 0.0)
        for _ in range(3):
            sft_step(policy, optimizer, examples(policy), 1e-2, SftConfig())
        assert torch.equal(policy.model.get_base_model().lm_head.weight, base)
        sampler = Sampler(policy.make_decoder(2, 200), policy.tokenizer, SamplingConfig(rows=2, max_tokens=10))
        conversation = Conversation(seed=0)
        turn = sampler.sample([conversation], [policy.tokenizer.prompt_ids(prompt("beta"))])[0]
        with torch.no_grad():
            logprobs = torch.log_softmax(policy.model(torch.tensor([conversation.ids])).logits[0], -1)
        start = len(conversation.ids) - len(turn.token_ids)
        for k, (token, logprob) in enumerate(zip(turn.token_ids, turn.logprobs, strict=True)):
            assert logprob == pytest.approx(float(logprobs[start + k - 1, token]), abs=1e-4)

    def test_a_checkpoint_holds_the_adapters_alone(self, pretrained, tmp_path):
        policy = self.load(pretrained)
        optimizer = make_optimizer(policy, 1e-2, 0.0)
        sft_step(policy, optimizer, examples(policy), 1e-2, SftConfig())
        path = Checkpoints(tmp_path / "c").save("rl-1", policy, optimizer, {})
        stored = torch.load(path / "training.pt", weights_only=True)["model"]
        assert stored and all("lora_" in name for name in stored)
        fresh = self.load(pretrained)
        Checkpoints.load(path, fresh, make_optimizer(fresh, 1e-2, 0.0))
        with torch.no_grad():
            assert torch.equal(policy.statistics(examples(policy)).logprobs, fresh.statistics(examples(fresh)).logprobs)


def test_a_pretrained_model_without_cold_start_goes_straight_to_rl(pretrained, tmp_path):
    import asyncio

    from drkernel.rl.run.trainer import Run

    recipe = tiny_recipe(
        tmp_path,
        policy={"model": str(pretrained)},
        copying=None,
        sft=None,
        coldstart_file=None,
        rollout={"tasks": 2, "samples": 2, "context": 500, "sampling": {"max_tokens": 10, "rows": 8}},
        rl={"steps": 1, "learner": {"lr": 0.001}},
        evaluation={"final_tasks": 2, "final_samples": 1},
    )
    summary = asyncio.run(Run(recipe, FakePool()).run())
    assert summary["steps"] == {"copying": 0, "sft": 0, "rl": 1}
    lines = (tmp_path / "runs" / "tiny" / "eval.jsonl").read_text().splitlines()
    assert [json.loads(line)["stage"] for line in lines] == ["base", "rl"]
