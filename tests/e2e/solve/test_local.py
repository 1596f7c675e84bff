"""A local model as a chat client: batches, exact continuation, the limits of its context."""

import asyncio

import pytest

from drkernel.config import ConfigError
from drkernel.episode.records import ContextFull, Message, ModelCall, ModelError, Reply, Sampling, Turn
from drkernel.rl.model.answerer import LocalModel
from tiny import prompt, tiny_policy
from verdicts import verdict_of

SAMPLING = Sampling(max_tokens=12, seed=3, extra={"context": 128, "rows": 4, "device": "cpu"})


@pytest.fixture(scope="module")
def policy():
    return tiny_policy()


def call(*contents, sampling=SAMPLING, **values):
    roles = ("user", "assistant")
    messages = tuple(Message(role=roles[i % 2], content=text) for i, text in enumerate(contents))
    return ModelCall(messages=messages, sampling=sampling, **values)


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


def turn_of(reply, feedback="Improve it."):
    """The turn that a reply became."""
    verdict = verdict_of("incorrect")
    return Turn(id="0", parent=None, reply=reply, verdict=verdict, reward=0.0, feedback=feedback)


def test_a_conversation_goes_on_with_the_ids_that_were_sampled(policy):
    model, tokenizer = LocalModel("tiny", SAMPLING, policy=policy), policy.tokenizer
    (first,) = ask(model, call(prompt("alpha")))
    drawn = first.sampled
    turn = turn_of(first)
    going_on = call(prompt("alpha"), first.text, "Improve it.", turn=2, shown=(turn,))
    told = tokenizer.feedback_ids("Improve it.", ended=drawn.stop == "end")
    (second,) = ask(model, going_on)
    assert second.sampled.context_ids == (*drawn.context_ids, *drawn.token_ids, *told)
    assert second.usage.prompt == len(second.sampled.context_ids)
    # after a restart the ids are gone: tokenised anew
    bare = turn.model_copy(update={"reply": Reply(text=first.text)})
    (second,) = ask(model, going_on.model_copy(update={"shown": (bare,)}))
    again = [*tokenizer.prompt_ids(prompt("alpha")), *tokenizer.encode(first.text), tokenizer.end_id]
    assert second.sampled.context_ids == (*again, *tokenizer.feedback_ids("Improve it.", ended=True))


def test_a_cut_conversation_shows_each_answer_as_it_was_sampled(policy):
    answerer, tokenizer = LocalModel("tiny", SAMPLING, policy=policy)._answerer, policy.tokenizer
    replies = ask(LocalModel("tiny", SAMPLING, policy=policy), *(call(prompt(w)) for w in ("alpha", "beta", "gamma")))
    turns = [turn_of(reply, f"told {k}") for k, reply in enumerate(replies)]
    third = turns[2].model_copy(update={"id": "0.0.0", "parent": "0.0", "shown": ("0", "0.0")})
    request = call(prompt("alpha"), "a", "told 0", "b", "told 2", shown=(turns[0], third))
    expected = list(tokenizer.prompt_ids(prompt("alpha")))
    for turn in (turns[0], third):
        ended = turn.sampled.stop == "end"
        expected += [*turn.sampled.token_ids, *tokenizer.feedback_ids(turn.feedback, ended=ended)]
    assert answerer.context_ids(request) == expected


def test_a_system_message_opens_the_conversation(policy):
    answerer = LocalModel("tiny", SAMPLING, policy=policy)._answerer
    messages = (Message(role="system", content="Be brief."), Message(role="user", content="alpha"))
    text = policy.tokenizer.hf.decode(answerer.context_ids(ModelCall(messages=messages)))
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
