"""Architectures that the lean forward does not know: trained and sampled through transformers."""

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel, GPTNeoXConfig, GPTNeoXForCausalLM, LlamaConfig, LlamaForCausalLM

from drkernel.config import ConfigError
from drkernel.rl.model.answerer import GenerateSampler
from drkernel.rl.model.policy import Policy, PolicyConfig
from drkernel.rl.model.sampler import Conversation, SamplingConfig
from tiny import tiny_tokenizer

SIZES = {"vocab_size": 97, "num_hidden_layers": 2, "hidden_size": 32, "num_attention_heads": 4}
MODELS = {
    "gpt2": lambda: GPT2LMHeadModel(GPT2Config(vocab_size=97, n_embd=32, n_layer=2, n_head=4, n_positions=64)),
    "neox": lambda: GPTNeoXForCausalLM(GPTNeoXConfig(**SIZES, intermediate_size=48, max_position_embeddings=64)),
    "llama-linear-rope": lambda: LlamaForCausalLM(
        LlamaConfig(
            **SIZES,
            intermediate_size=48,
            max_position_embeddings=64,
            rope_scaling={"rope_type": "linear", "factor": 2.0},
        )
    ),
}


@pytest.fixture(scope="module", params=list(MODELS))
def model(request):
    torch.manual_seed(0)
    made = MODELS[request.param]().eval()
    with torch.no_grad():
        for parameter in made.parameters():
            if parameter.dim() == 2:
                parameter.mul_(4)
    return made


async def test_a_local_model_answers_through_generate(model):
    tokenizer = tiny_tokenizer()
    with torch.no_grad():
        model.resize_token_embeddings(len(tokenizer))
    policy = Policy(model, tokenizer, PolicyConfig(model="x", device="cpu"))
    assert not policy.lean
    with pytest.raises(ConfigError, match="backend vllm"):
        policy.make_decoder(3, 60)
    sampler = GenerateSampler(policy, SamplingConfig(max_tokens=8, stop_at_fence=False, top_p=0.9), 60)
    ids = tokenizer.encode("name = beta")

    async def answers(seeds):
        drawn = {}
        async for index, turn in sampler.stream([Conversation(seed=seed) for seed in seeds], [ids] * len(seeds)):
            drawn[index] = turn
        return [drawn[index] for index in range(len(seeds))]

    one, two, again = await answers([1, 2, 1])
    assert one == again and one.token_ids != two.token_ids and 1 <= len(one.token_ids) <= 8
    with torch.no_grad():
        probs = model(torch.tensor([[*ids, *one.token_ids]])).logits[0].softmax(-1)
    for place, (token, logprob) in enumerate(zip(one.token_ids, one.logprobs, strict=True), len(ids) - 1):
        ordered = probs[place].sort(descending=True).values
        mass = ordered[ordered.cumsum(0) - ordered < 0.9].sum()
        assert logprob == pytest.approx(float((probs[place, token] / mass).log()), abs=1e-3)


def test_training_over_packed_sequences_equals_separate_ones(model):
    from drkernel.rl.model.policy import Example

    policy = Policy(model, tiny_tokenizer(), PolicyConfig(model="x", device="cpu"))
    examples = [Example(list(range(3, 3 + n)), [False] + [True] * (n - 1)) for n in (5, 9, 2)]
    packed = policy.statistics(examples).logprobs
    alone = torch.cat([policy.statistics([example]).logprobs for example in examples])
    torch.testing.assert_close(packed, alone, atol=1e-4, rtol=1e-4)
    ids = torch.tensor([list(examples[1].ids)])
    expected = torch.log_softmax(model(ids).logits[0, :-1], -1).gather(1, ids[0, 1:, None])[:, 0]
    torch.testing.assert_close(policy.statistics([examples[1]]).logprobs, expected, atol=1e-4, rtol=1e-4)
