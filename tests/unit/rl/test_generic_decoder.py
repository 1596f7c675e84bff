"""Decoding of architectures that the lean forward does not know."""

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel, GPTNeoXConfig, GPTNeoXForCausalLM, LlamaConfig, LlamaForCausalLM

from drkernel.rl.model.generic_decoder import GenericDecoder
from drkernel.rl.model.policy import Policy, PolicyConfig
from drkernel.rl.model.sampler import Conversation, Sampler, SamplingConfig
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


def test_decoding_in_pieces_equals_one_forward(model):
    a, b = torch.randint(0, 97, (20,)), torch.randint(0, 97, (30,))
    with torch.no_grad():
        one, two = model(a[None]).logits[0], model(b[None]).logits[0]
    decoder = GenericDecoder(model, rows=4, capacity=40)
    logits = decoder.extend([0, 1], [a[:5].tolist(), b[:17].tolist()])
    torch.testing.assert_close(logits, torch.stack([one[4], two[16]]), atol=1e-4, rtol=1e-4)
    logits = decoder.step(torch.stack([a[5], b[17]]))
    torch.testing.assert_close(logits, torch.stack([one[5], two[17]]), atol=1e-4, rtol=1e-4)
    saved = decoder.save(0)
    decoder.move(1, 0)
    decoder.load(3, saved)
    logits = decoder.extend([3, 0], [a[6:15].tolist(), b[18:20].tolist()])
    torch.testing.assert_close(logits, torch.stack([one[14], two[19]]), atol=1e-4, rtol=1e-4)


def test_the_sampler_works_over_it(model):
    tokenizer = tiny_tokenizer()
    with torch.no_grad():
        model.resize_token_embeddings(len(tokenizer))
    policy = Policy(model, tokenizer, PolicyConfig(model="x", device="cpu"))
    assert not policy.lean
    sampler = Sampler(policy.make_decoder(3, 60), tokenizer, SamplingConfig(rows=3, max_tokens=8))
    conversations = [Conversation(seed=i) for i in range(5)]
    turns = sampler.sample(conversations, [tokenizer.encode("name = beta")] * 5)
    for conversation, turn in zip(conversations, turns, strict=True):
        with torch.no_grad():
            logprobs = torch.log_softmax(model(torch.tensor([conversation.ids])).logits[0], -1)
        start = len(conversation.ids) - len(turn.token_ids)
        for k, (token, logprob) in enumerate(zip(turn.token_ids, turn.logprobs, strict=True)):
            assert logprob == pytest.approx(float(logprobs[start + k - 1, token]), abs=1e-3)


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
