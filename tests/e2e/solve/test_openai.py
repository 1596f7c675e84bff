"""The OpenAI client and the meter around it, against a real local endpoint with faults."""

import asyncio
import json
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drkernel.config import ConfigError
from drkernel.episode.endpoint import OpenAIModel, _read_stream, _read_whole, as_reply
from drkernel.episode.meter import Budget, BudgetSpent, CallLimits, Meter, Prices, RateLimiter, ReplyCache, money
from drkernel.episode.records import ContextFull, Message, ModelCall, ModelError, Reply, Sampling
from solve_endpoint import FAULTS, Endpoint

KEY = "sk-secret-0123456789"
FAST = CallLimits(backoff_s=0.01, backoff_max_s=0.02)
TEXT = "An answer of some length, with ünïcode and\nseveral lines.\n" * 5


def call(content="hello", **values):
    return ModelCall(messages=(Message(role="user", content=content),), **values)


def ask(endpoint, *calls, timeout=2.0, limits=FAST, cache=None, prices=None, budget=Budget(), model=None, all=False):
    """The answers and the meter; with ``all``, exceptions among the answers."""

    async def go():
        client = model or OpenAIModel("m", base_url=endpoint.url, timeout=timeout)
        meter = Meter(client, limits=limits, cache=cache, prices=prices, budget=budget)
        try:
            return await asyncio.gather(*map(meter.complete, calls), return_exceptions=all), meter
        finally:
            await client.close()

    return asyncio.run(go())


def test_an_answer_with_its_usage():
    with Endpoint(lambda messages, seed: TEXT) as endpoint:
        (reply,), meter = ask(endpoint, call(sampling=Sampling(temperature=0.5, top_p=0.9, seed=3, extra={"x": 1})))
    assert reply.text == TEXT and reply.finish == "stop" and reply.model == "test" and reply.tries == 1
    assert (reply.usage.prompt, reply.usage.completion, reply.usage.cached) == (100, len(TEXT), 40)
    assert not reply.usage.estimated and meter.spending.usage == meter.spending.paid == reply.usage
    body = endpoint.bodies[0]
    assert (body["model"], body["temperature"], body["top_p"], body["x"]) == ("m", 0.5, 0.9, 1)
    assert body["max_tokens"] == 8192 and isinstance(body["seed"], int)


@pytest.mark.parametrize("fault", FAULTS)
def test_every_fault_is_tried_again_and_leaves_no_trace_in_the_answer(fault):
    with Endpoint(lambda messages, seed: TEXT, lambda digest, attempt: fault if attempt < 2 else None) as endpoint:
        (reply,), meter = ask(endpoint, call(), timeout=0.4)
    assert reply.text == TEXT and reply.tries == 3
    assert meter.spending.retries == 2 and sum(meter.spending.failures.values()) == 2
    assert meter.spending.troubles().endswith(" 2")
    assert endpoint.faults[fault] == 2 and len(endpoint.served) == 1


def test_an_endpoint_that_keeps_failing_is_given_up():
    with Endpoint(lambda messages, seed: TEXT, lambda digest, attempt: "500") as endpoint:
        with pytest.raises(ModelError, match=r"no answer after 3 tries.*HTTP 500: fault 500"):
            ask(endpoint, call(), limits=FAST.model_copy(update={"tries": 3}))
        assert endpoint.faults["500"] == 3


def test_retry_after_is_honoured():
    seen = []

    def fault(digest, attempt):
        seen.append(time.monotonic())
        return "429" if attempt == 0 else None

    with Endpoint(lambda messages, seed: TEXT, fault, retry_after="0.5") as endpoint:
        ask(endpoint, call())
    assert seen[1] - seen[0] >= 0.5


def test_a_wrong_key_is_told_once_and_never_shown(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    with Endpoint(lambda messages, seed: TEXT, key="another") as endpoint:
        model = OpenAIModel("m", base_url=endpoint.url)
        with pytest.raises(ModelError) as caught:
            ask(endpoint, call(), model=model)
        assert len(endpoint.bodies) == 1
    shown = f"{caught.value} {model!r} {model.name} {vars(caught.value)}"
    assert "401" in shown and "[key]" in str(caught.value) and KEY not in shown


def test_the_key_reaches_the_endpoint(monkeypatch):
    monkeypatch.setenv("MY_KEY", KEY)
    with Endpoint(lambda messages, seed: TEXT, key=KEY) as endpoint:
        (reply,), _ = ask(endpoint, call(), model=OpenAIModel("m", base_url=endpoint.url, key_env="MY_KEY"))
    assert reply.text == TEXT


def test_a_key_with_a_line_break_is_used_without_it(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", f"  {KEY}\n")
    with Endpoint(lambda messages, seed: TEXT, key=KEY) as endpoint:
        (reply,), _ = ask(endpoint, call())
    assert reply.text == TEXT


@pytest.mark.parametrize("key", [KEY + "\nx", KEY + "\u00fc", "two words"])
def test_what_cannot_be_a_key_is_refused_without_being_shown(monkeypatch, key):
    monkeypatch.setenv("OPENAI_API_KEY", key)
    with pytest.raises(ConfigError, match="OPENAI_API_KEY holds no key") as caught:
        OpenAIModel("m", base_url="http://localhost:1/v1")
    assert key[:6] not in str(caught.value)


def test_a_wrong_key_is_met_once_however_many_ask(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    with Endpoint(lambda messages, seed: TEXT, key="another") as endpoint:
        results = gathered(endpoint, 9, limits=CallLimits(concurrency=1))
        assert len(endpoint.bodies) == 1
    assert all("HTTP 401" in str(result) for result in results)


def test_an_endpoint_that_never_answered_is_given_up_and_one_that_did_is_not():
    limits = FAST.model_copy(update={"tries": 2, "concurrency": 3})
    with Endpoint(lambda messages, seed: TEXT, lambda digest, attempt: "500") as endpoint:
        results = gathered(endpoint, 30, limits=limits)
        assert all("HTTP 500" in str(result) for result in results)
        assert 3 * 2 <= len(endpoint.bodies) <= 5 * 2  # two more may start before the third has failed
    first = []

    def later(digest, attempt):
        first.append(digest)
        return None if first[0] == digest else "500"

    with Endpoint(lambda messages, seed: TEXT, later) as endpoint:
        results = gathered(endpoint, 10, limits=limits.model_copy(update={"concurrency": 1}))
        assert len(endpoint.bodies) == 1 + 9 * 2 and sum(isinstance(result, Reply) for result in results) == 1


def gathered(endpoint, count, limits):
    """Answers or exceptions of so many calls."""
    return ask(endpoint, *(call(f"q{index}") for index in range(count)), limits=limits, all=True)[0]


@pytest.mark.parametrize(("arguments", "message"), [
    ({"base_url": None}, "no key: set OPENAI_API_KEY"),
    ({"base_url": "localhost:8000"}, "is not an address"),
    ({"base_url": "http://me:pass@host/v1"}, "no password"),
    ({"base_url": "http://host/v1", "key_env": "NOT_SET_ANYWHERE"}, "set NOT_SET_ANYWHERE"),
])  # fmt: skip
def test_mistakes_are_told_before_anything_is_asked(monkeypatch, arguments, message):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(ConfigError, match=message):
        OpenAIModel("m", **arguments)


def test_a_conversation_that_is_too_long_is_not_tried_again():
    fault = "400:This model's maximum context length is 4096 tokens"
    with Endpoint(lambda messages, seed: TEXT, lambda digest, attempt: fault) as endpoint:
        with pytest.raises(ContextFull, match="4096"):
            ask(endpoint, call())
        assert len(endpoint.bodies) == 1


def test_an_endpoint_that_wants_another_field_for_the_budget_gets_it():
    def fault(digest, attempt):
        return None if "max_completion_tokens" in endpoint.bodies[-1] else wanted

    wanted = "400:Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead."
    with Endpoint(lambda messages, seed: TEXT, fault) as endpoint:
        replies, _ = ask(endpoint, call())
    assert replies[0].text == TEXT and "max_tokens" not in endpoint.bodies[-1]


def test_no_more_requests_at_once_than_allowed():
    with Endpoint(lambda messages, seed: TEXT, delay=0.03) as endpoint:
        ask(endpoint, *(call(f"q{i}") for i in range(12)), limits=CallLimits(concurrency=3))
    assert endpoint.most_at_once == 3


def test_a_rate_limit_lets_a_second_of_requests_through_and_spreads_the_rest():
    now = 100.0
    limiter = RateLimiter(120, clock=lambda: now)
    assert [limiter.wait_for(1) for _ in range(4)] == pytest.approx([0, 0, 0.5, 1.0])
    now = 101.0
    assert limiter.wait_for(1) == pytest.approx(0.5)  # a second later the two that were owed are paid
    now = 200.0
    assert limiter.wait_for(1) == 0 and limiter.wait_for(240) == pytest.approx(239 / 2)


def test_cached_answers_are_not_asked_for_again(tmp_path):
    prices = Prices(prompt=1.0, completion=10.0, cached=0.1)
    with Endpoint(lambda messages, seed: TEXT) as endpoint:
        first, meter = ask(endpoint, call(), call(turn=2), cache=ReplyCache(tmp_path / "c.sqlite"), prices=prices)
        again, later = ask(endpoint, call(), call(turn=2), cache=ReplyCache(tmp_path / "c.sqlite"), prices=prices)
    assert len(endpoint.served) == 2 and [r.text for r in first] == [r.text for r in again]
    assert later.spending.paid.total == 0
    assert later.dollars == meter.dollars == pytest.approx(2 * (60 * 1 + 40 * 0.1 + len(TEXT) * 10) / 1e6)


def test_a_budget_ends_the_asking():
    with Endpoint(lambda messages, seed: TEXT) as endpoint:
        with pytest.raises(BudgetSpent, match="300 tokens"):
            ask(
                endpoint,
                *(call(f"q{i}") for i in range(9)),
                limits=CallLimits(concurrency=1),
                budget=Budget(tokens=300),
            )
        assert len(endpoint.served) == 1  # one answer of 100 + 295 tokens
        with pytest.raises(BudgetSpent, match=r"\$0.001"):
            ask(endpoint, *(call(f"q{i}") for i in range(9)), limits=CallLimits(concurrency=1),
                budget=Budget(dollars=0.001), prices=Prices(prompt=1, completion=2))  # fmt: skip
        assert len(endpoint.served) == 3


def test_minutes_end_a_wait_too():
    endpoint = Endpoint(lambda messages, seed: TEXT, lambda digest, attempt: "stall")
    with endpoint, pytest.raises(BudgetSpent, match="minutes"):
        ask(endpoint, call(), timeout=20.0, budget=Budget(minutes=0.01))


def test_a_dollar_budget_needs_prices():
    with pytest.raises(ValueError, match="prices"):
        Meter(OpenAIModel("m", base_url="http://localhost:1/v1"), budget=Budget(dollars=1))


def test_small_amounts_keep_two_digits():
    shown = [money(dollars) for dollars in (0, 0.00123, 0.05, 0.1, 12.3)]
    assert shown == ["$0.00", "$0.0012", "$0.050", "$0.10", "$12.30"]


FIELDS = st.sampled_from(
    ["choices", "delta", "message", "content", "finish_reason", "usage", "model", "error", "completion_tokens",
     "prompt_tokens", "prompt_tokens_details", "cached_tokens"]
)  # fmt: skip
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(FIELDS, inner, max_size=3),
    max_leaves=12,
)


def test_an_answer_in_parts_is_their_text_and_what_is_no_text_is_no_answer():
    def whole(content):
        choice = {"message": {"content": content}, "finish_reason": "stop"}
        gathered = _read_whole(json.dumps({"choices": [choice]}).encode())
        return as_reply(call(), gathered, "m", 0.0).text

    assert whole([{"type": "text", "text": "a"}, {"type": "thinking"}, {"type": "text", "text": "b"}]) == "ab"
    assert whole(None) == ""
    for wrong in (7, {"text": "a"}, ["a"]):
        with pytest.raises(ModelError, match="content is"):
            whole(wrong)


@settings(deadline=None, max_examples=60)
@given(st.lists(JSON, max_size=4), st.booleans())
def test_whatever_an_endpoint_sends_is_an_answer_or_a_model_error(chunks, stream):
    async def lines():
        for chunk in chunks:
            yield "data: " + json.dumps(chunk)

    try:
        if stream:
            gathered = asyncio.run(_read_stream(lines()))
        else:
            gathered = _read_whole(json.dumps(chunks[0] if chunks else None).encode())
        reply = as_reply(call(), gathered, "m", 0.0)
    except ModelError as error:
        assert error.retry
    else:
        assert isinstance(reply, Reply)
