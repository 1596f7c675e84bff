import asyncio

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from drkernel.rl.model.sampler import Conversation, Sampler, SamplingConfig, draw, turn_uniforms
from tiny import WORDS, prompt, tiny_policy


def make_sampler(policy, rows=4, capacity=200, **config):
    terms = SamplingConfig(rows=rows, **{"max_tokens": 12, **config})
    return Sampler(policy.make_decoder(rows, capacity), policy.tokenizer, terms)


@pytest.fixture(scope="module")
def policy():
    made = tiny_policy()
    with torch.no_grad():  # a sharper distribution than that of fresh weights
        made.model.get_input_embeddings().weight.mul_(10)
    return made


def run(policy, count=9, rows=4, turns=2, keep_cache=True, **config):
    sampler = make_sampler(policy, rows, **config)
    conversations = [Conversation(seed=100 + i) for i in range(count)]
    appends = [policy.tokenizer.prompt_ids(prompt(WORDS[i % 4])) for i in range(count)]
    out = []
    for _ in range(turns):
        sampled = sampler.sample(conversations, appends, keep_cache=keep_cache)
        out.append(sampled)
        appends = [policy.tokenizer.feedback_ids("Improve it.", ended=s.stop == "end") for s in sampled]
    return conversations, out


def full_logprobs(policy, ids, temperature=1.0):
    with torch.no_grad():
        return torch.log_softmax(policy.model(torch.tensor(ids)[None]).logits[0] / temperature, -1)


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_logprobs_are_those_of_a_full_forward_over_the_same_ids(policy, temperature):
    conversations, turns = run(policy, temperature=temperature)
    for index, conversation in enumerate(conversations):
        logprobs = full_logprobs(policy, conversation.ids, temperature)
        end = len(conversation.ids)
        sampled = turns[-1][index]
        pairs = zip(reversed(sampled.token_ids), reversed(sampled.logprobs), strict=True)
        for back, (token, logprob) in enumerate(pairs, 1):
            assert conversation.ids[end - back] == token
            assert logprob == pytest.approx(float(logprobs[end - back - 1, token]), abs=1e-4)


def test_what_is_drawn_does_not_depend_on_the_batch(policy):
    whole, _ = run(policy, rows=9)
    narrow, _ = run(policy, rows=2)
    without_cache, _ = run(policy, rows=4, keep_cache=False)
    alone, _ = run(policy, count=1, rows=1)
    assert [c.ids for c in whole] == [c.ids for c in narrow] == [c.ids for c in without_cache]
    assert alone[0].ids == whole[0].ids


def test_seeds_decide_the_draws(policy):
    first, _ = run(policy)
    again, _ = run(policy)
    assert [c.ids for c in first] == [c.ids for c in again]
    assert len({tuple(c.ids[-12:]) for c in first}) > 5
    assert (turn_uniforms(1, 0, 5) == turn_uniforms(1, 0, 9)[:5]).all()
    assert not (turn_uniforms(1, 0, 5) == turn_uniforms(1, 1, 5)).any()
    turn_uniforms(-3, 0, 1)


def test_draws_follow_the_distribution():
    logits = torch.tensor([[1.0, 0.0, 2.0, -1.0, -50.0]]).expand(40_000, -1)
    uniform = torch.from_numpy(np.random.default_rng(0).random(40_000))
    ids, logprobs, cut = draw(logits, uniform, SamplingConfig())
    expected = torch.softmax(logits[0], -1)
    share = torch.bincount(ids, minlength=5) / 40_000
    assert (share - expected).abs().max() < 0.01
    assert torch.equal(logprobs, torch.log_softmax(logits, -1)[torch.arange(40_000), ids])
    assert (cut == 0).all()


@pytest.mark.parametrize(
    ("terms", "kept"),
    [
        ({"top_p": 0.6}, [2]),
        ({"top_p": 0.7}, [0, 2]),
        ({"temperature": 0.0}, None),
    ],
)
def test_cuts_keep_the_right_tokens_and_renormalise(terms, kept):
    logits = torch.tensor([[1.0, 0.0, 2.0, -1.0, -50.0]]).expand(4000, -1)
    uniform = torch.linspace(0, 1 - 1e-9, 4000, dtype=torch.float64)
    ids, logprobs, cut = draw(logits, uniform, SamplingConfig(**terms))
    probs = torch.softmax(logits[0], -1)
    if kept is None:
        assert (ids == 2).all() and torch.allclose(logprobs, probs[2].log())
        return
    assert sorted(set(ids.tolist())) == kept
    mass = probs[kept].sum()
    assert torch.allclose(logprobs, (probs[ids] / mass).log(), atol=1e-6)
    assert torch.allclose(cut, 1 - mass, atol=1e-6)


def test_the_ends_of_the_line_never_draw_an_impossible_token():
    logits = torch.full((2, 1000), -200.0)
    logits[:, 500] = 0.0
    ids, logprobs, _ = draw(logits, torch.tensor([0.0, 1 - 2**-53], dtype=torch.float64), SamplingConfig())
    assert ids.tolist() == [500, 500]
    assert torch.isfinite(logprobs).all()


def scripted(policy, texts):
    """A sampler whose model writes given texts: the logits point at the next id."""
    scripts = [policy.tokenizer.encode(text) + [policy.tokenizer.end_id] * 3 for text in texts]

    class Scripted:
        rows, capacity = 8, 200

        def __init__(self):
            self.at = {}
            self.steps = 0

        def logits(self, row):
            script, position = self.at[row]
            return 100.0 * F.one_hot(torch.tensor(script[position]), len(policy.tokenizer)).float()

        def extend(self, rows, ids):
            for row, new in zip(rows, ids, strict=True):
                self.at[row] = (scripts[new[0] % len(scripts)], 0)
            return torch.stack([self.logits(row) for row in rows])

        def step(self, tokens):
            self.steps += 1
            self.at = {row: (s, p + 1) if row < len(tokens) else (s, p) for row, (s, p) in self.at.items()}
            return torch.stack([self.logits(row) for row in range(len(tokens))])

        def clear(self, row):
            pass

        def move(self, source, target):
            self.at[target] = self.at[source]

        def save(self, row):
            return torch.zeros(1, 0, 1)

    return Sampler(Scripted(), policy.tokenizer, SamplingConfig(rows=8, max_tokens=30))


def test_turns_stop_at_the_end_token_the_closing_fence_or_the_budget(policy):
    texts = ["plain", "say\n```python\ncode\n```\nmore", "word " * 40, "inline ` and ``` no block"]
    sampler = scripted(policy, texts)
    turns = sampler.sample([Conversation(seed=i) for i in range(4)], [[i] for i in range(4)])
    decoded = [policy.tokenizer.decode(turn.token_ids) for turn in turns]
    assert [turn.stop for turn in turns] == ["end", "fence", "length", "end"]
    assert decoded[0] == texts[0] and decoded[3] == texts[3]
    assert decoded[1].startswith("say\n```python\ncode\n```") and "more" not in decoded[1]
    assert len(turns[2].token_ids) == 30
    assert turns[0].token_ids[-1] == policy.tokenizer.end_id


def test_finished_rows_are_handed_out_at_once_and_cost_no_more_steps(policy):
    sampler = scripted(policy, ["a", "word " * 40])
    order = []

    async def play():
        conversations = [Conversation(seed=i) for i in range(2)]
        async for index, _ in sampler.stream(conversations, [[0], [1]]):
            order.append((index, sampler.decoder.steps))

    asyncio.run(play())
    assert order[0][0] == 0 and order[0][1] < order[1][1]
    assert sampler.tokens == 30 + 2


def test_a_conversation_without_room_ends_without_tokens(policy):
    sampler = make_sampler(policy, capacity=40)
    conversation = Conversation(seed=0)
    long = [5] * 40
    short = Conversation(seed=1)
    turns = sampler.sample([conversation, short], [long, [5] * 34])
    assert turns[0].stop == "context" and turns[0].token_ids == ()
    assert turns[1].stop in ("context", "end", "fence") and len(short.ids) <= 40


def test_a_decoder_with_rounded_weights_still_reports_the_distribution_it_drew_from(policy):
    decoder = policy.make_decoder(4, 128, "bf16")
    sampler = Sampler(decoder, policy.tokenizer, SamplingConfig(rows=4, max_tokens=8))
    conversation = Conversation(seed=3)
    ids = policy.tokenizer.prompt_ids(prompt("beta"))
    turn = sampler.sample([conversation], [ids])[0]
    decoder.clear(0)
    logits = decoder.extend([0], [ids])
    assert turn.logprobs[0] == pytest.approx(float(torch.log_softmax(logits, -1)[0, turn.token_ids[0]]), abs=1e-6)
    exact = full_logprobs(policy, ids)[-1]
    assert 1e-4 < float((torch.log_softmax(logits, -1)[0] - exact).abs().max()) < 2
