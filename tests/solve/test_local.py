"""A local model as a chat client: batches, exact continuation, the limits of its context."""

import asyncio
import sys
from pathlib import Path

import pytest

from drkernel.config import ConfigError
from drkernel.episode.chat import Call, ContextFull, Message, ModelError, Sampling
from drkernel.rl.model.answerer import LocalModel

sys.path.insert(0, str(Path(__file__).parents[1] / "rl"))
from tiny import prompt, tiny_policy

SAMPLING = Sampling(max_tokens=12, seed=3, extra={"context": 128, "rows": 4, "device": "cpu"})


@pytest.fixture(scope="module")
def policy():
    return tiny_policy()


def call(*contents, sampling=SAMPLING, **values):
    roles = ("user", "assistant")
    messages = tuple(Message(role=roles[i % 2], content=text) for i, text in enumerate(contents))
    return Call(messages=messages, sampling=sampling, **values)


def ask(model, *calls):
    async def go():
        return await asyncio.gather(*(model.complete(one) for one in calls))

    return asyncio.run(go())


def test_answers_drawn_together_are_those_drawn_alone(policy):
    calls = [call(prompt(word), task_id=word, sample=i) for word in ("alpha", "beta") for i in range(3)]
    together = ask(LocalModel("tiny", SAMPLING, policy=policy), *calls)
    alone = [ask(LocalModel("tiny", SAMPLING, policy=policy), one)[0] for one in calls]
    assert [reply.text for reply in together] == [reply.text for reply in alone]
    assert len({reply.text for reply in together}) > 3  # samples differ by their seeds
    assert all(0 < reply.usage.completion <= 12 and not reply.usage.estimated for reply in together)
    ids = policy.tokenizer.prompt_ids(prompt("alpha"))
    assert together[0].usage.prompt == len(ids)


def test_a_conversation_goes_on_with_the_ids_that_were_sampled(policy):
    model = LocalModel("tiny", SAMPLING, policy=policy)
    (first,) = ask(model, call(prompt("alpha")))
    (known,) = model._known.values()
    before, append = model._ids(call(prompt("alpha"), first.text, "Improve it.").messages)
    assert before == known.ids and append == policy.tokenizer.feedback_ids("Improve it.", ended=known.ended)
    (second,) = ask(model, call(prompt("alpha"), first.text, "Improve it.", turn=2))
    assert second.usage.prompt == len(before) + len(append)
    fresh = LocalModel("tiny", SAMPLING, policy=policy)  # after a restart: tokenised anew
    before, append = fresh._ids(call(prompt("alpha"), first.text, "Improve it.").messages)
    tokenizer = policy.tokenizer
    again = [*tokenizer.prompt_ids(prompt("alpha")), *tokenizer.encode(first.text), tokenizer.end_id]
    assert before == [] and append == again + tokenizer.feedback_ids("Improve it.", ended=True)


def test_a_system_message_opens_the_conversation(policy):
    model = LocalModel("tiny", SAMPLING, policy=policy)
    messages = (Message(role="system", content="Be brief."), Message(role="user", content="alpha"))
    _, append = model._ids(messages)
    text = policy.tokenizer.hf.decode(append)
    assert "Be brief." in text and text.index("Be brief.") < text.index("alpha")


def test_a_prompt_over_the_context_is_refused(policy):
    with pytest.raises(ContextFull, match="context of 128"):
        ask(LocalModel("tiny", SAMPLING, policy=policy), call("alpha " * 200))


def test_other_sampling_terms_and_unknown_extras_are_refused(policy):
    with pytest.raises(ModelError, match="other sampling terms"):
        ask(LocalModel("tiny", SAMPLING, policy=policy), call("x", sampling=Sampling(max_tokens=5)))
    with pytest.raises(ConfigError, match=r"rows, context, stop_at_fence.*beams"):
        LocalModel("tiny", Sampling(extra={"beams": 4}), policy=policy)


def test_a_path_without_a_model_is_told():
    with pytest.raises(ConfigError, match="cannot load model '/no/such'"):
        LocalModel("/no/such")
