"""The loop: what the model is shown, what goes on, when it stops."""

import asyncio

import pytest

from drkernel.episode.episode import Episode, EpisodeConfig
from drkernel.episode.episode import play as play_episode
from drkernel.episode.records import ContextFull, ModelError, Sampling, best_of, best_path, count_tokens
from solve_fakes import FunctionModel, TextPool, answer, make_tasks

TASK = make_tasks(1)[0]
LOOP = ("breadth", "context_tokens", "sampling")


def play(function, pool=None, done=(), **terms):
    """(trajectory, model): a whole episode with a model that answers ``function(call)``."""
    model = FunctionModel(function)
    loop = {name: terms.pop(name) for name in LOOP if name in terms}

    async def go():
        episode = Episode(pool or TextPool(), EpisodeConfig(**terms))
        await episode.reset(TASK)
        return await play_episode(episode, model, done=done, **loop)

    return asyncio.run(go()), model


def best(keep, every):
    return {"name": "best", "keep": keep, "every": every}


def by_turn(*speeds):
    return lambda call: answer(speeds[call.turn - 1])


def test_vanilla_shows_every_turn_with_its_feedback():
    played, model = play(by_turn(1.1, "WRONG", 1.5), turns=3)
    assert played.end == "turns" and [a.status for a in played.turns] == ["correct", "incorrect", "correct"]
    roles = [[m.role for m in call.messages] for call in model.calls]
    assert roles == [["user"], ["user", "assistant", "user"], ["user", "assistant", "user", "assistant", "user"]]
    assert "Correct." in model.calls[1].messages[2].content and "turn 1 of 3" in model.calls[1].messages[2].content
    assert "Wrong result." in model.calls[2].messages[4].content
    assert model.calls[0].messages[0].content.count("ROWS = 1") == 1  # the size profile's
    assert played.turns[2].shown == (
        "0",
        "0.0",
    )


def test_reasoning_is_not_sent_back():
    _, model = play(lambda call: "<think>\nsecret\n</think>\n\n" + answer(1.0), turns=2)
    assert "secret" not in model.calls[1].messages[1].content and "ModelNew" in model.calls[1].messages[1].content


def test_context_management_keeps_the_best_by_reward_in_order():
    speeds = (1.5, "WRONG", 1.2, 2.5, 1.1, 1.0, 1.0, 1.0)
    played, model = play(by_turn(*speeds), turns=8, context=best(2, 4))
    assert [a.iteration for a in played.turns] == [1, 1, 1, 1, 2, 2, 2, 2]
    shown = [a.shown for a in played.turns]
    assert shown[3] == (
        "0",
        "0.0",
        "0.0.0",
    )
    assert shown[4] == (
        "0",
        "0.0.0.0",
    )  # the best two of four, in the order they were made
    assert shown[5] == (
        "0",
        "0.0.0.0",
        "0.0.0.0.0",
    )
    assert len(model.calls[4].messages) == 5


def test_keeping_nothing_starts_every_iteration_afresh():
    played, _ = play(by_turn(1.5, 1.2, 1.1), turns=3, context=best(0, 1))
    assert [a.shown for a in played.turns] == [(), (), ()]


def test_breadth_draws_several_and_the_best_goes_on():
    speeds = {(1, 0): 1.1, (1, 1): 1.9, (1, 2): "HACK", (2, 0): 1.2, (2, 1): "WRONG", (2, 2): 1.3}
    played, model = play(lambda call: answer(speeds[call.turn, call.sample]), turns=2, breadth=3)
    assert [turn.id for turn in played.turns] == ["1", "1.2"] and played.turns[1].shown == ("1",)
    assert sorted(turn.id for turn in played.aside) == ["0", "1.0", "1.1", "2"]
    assert all("SPEED = 1.9" in call.messages[1].content for call in model.calls[3:])
    every = [*played.aside, *played.turns]
    assert best_of(every).id == "1" and best_path(every) == list(played.turns)


def test_breadth_is_taken_up_branch_by_branch():
    speeds = {(1, 0): 1.1, (1, 1): 1.9, (2, 0): 1.2, (2, 1): 1.3}
    whole, _ = play(lambda call: answer(speeds[call.turn, call.sample]), turns=2, breadth=2)
    done = [turn for turn in (*whole.turns, *whole.aside) if turn.id != "1.0"]
    again, model = play(lambda call: answer(speeds[call.turn, call.sample]), turns=2, breadth=2, done=done)
    assert again == whole and [(call.turn, call.sample) for call in model.calls] == [(2, 0)]


def test_a_context_policy_may_show_answers_that_did_not_go_on():
    speeds = {(1, 0): 1.8, (1, 1): 1.9, (2, 0): 1.2, (2, 1): 1.1, (3, 0): 1.0, (3, 1): 1.0}
    played, _ = play(lambda call: answer(speeds[call.turn, call.sample]), turns=3, breadth=2, context=best(2, 1))
    assert played.turns[2].parent == "1.0" and played.turns[2].shown == ("0", "1")


def test_it_stops_at_the_target_speedup():
    played, model = play(by_turn(1.1, 2.1, 3.0), turns=3, target=2.0)
    assert played.end == "target" and len(model.calls) == 2


def test_a_conversation_over_the_context_ends_the_trajectory_before_asking():
    played, model = play(lambda call: answer(1.1, "x" * 4000), turns=9, context_tokens=9000)
    assert played.end == "context" and 1 <= len(model.calls) < 4


@pytest.mark.parametrize(
    ("error", "end", "said"),
    [
        (ContextFull("maximum context length is 4096"), "context", "4096"),
        (ModelError("HTTP 401: no"), "model_error", "401"),
    ],
)
def test_a_model_that_fails_leaves_what_is_there(error, end, said):
    def function(call):
        if call.turn == 2:
            raise error
        return answer(1.1)

    played, _ = play(function, turns=3)
    assert played.end == end and len(played.turns) == 1 and said in played.detail


def test_a_managed_conversation_is_cut_early_where_it_would_not_fit():
    speeds = (1.1, 1.5, 1.2, 1.9, 1.3, 1.4)
    terms = {"turns": 6, "context": best(2, 5), "sampling": Sampling(max_tokens=500), "context_tokens": 500 + 3000}
    played, model = play(lambda call: answer(speeds[call.turn - 1], "x" * 3700), **terms)
    assert played.end == "turns" and len(played.turns) == 6
    assert [a.shown for a in played.turns[:3]] == [
        (),
        ("0",),
        (
            "0",
            "0.0",
        ),
    ]
    assert played.turns[3].shown == (
        "0.0",
        "0.0.0",
    ) and played.turns[4].shown == (
        "0.0",
        "0.0.0.0",
    )
    assert [a.iteration for a in played.turns] == [1, 1, 1, 2, 3, 4]
    assert all(count_tokens(call.messages) + 500 <= 3500 for call in model.calls)


@pytest.mark.parametrize("keep", [2, None])
def test_a_model_that_refuses_the_length_is_shown_less_where_that_is_allowed(keep):
    def function(call):
        if len(call.messages) > 3:
            raise ContextFull("too long")
        return answer(1 + call.turn / 10)

    context = best(keep, 5) if keep else "full"
    played, model = play(function, turns=4, context=context)
    assert played.end == ("turns" if keep else "context") and len(played.turns) == (4 if keep else 2)
    if keep:
        assert [a.shown for a in played.turns] == [(), ("0",), ("0.0",), ("0.0.0",)]
        again, model = play(function, turns=5, context=context, done=played.turns)
        assert again.turns[:4] == played.turns and [call.turn for call in model.calls][-1] == 5


@pytest.mark.parametrize(("infra", "end", "calls"), [("stop", "infra_error", 2), ("skip", "turns", 3)])
def test_a_grader_that_fails_says_nothing_to_the_model(infra, end, calls):
    played, model = play(by_turn(1.1, "INFRA", 1.2), turns=3, infra=infra)
    assert played.end == end and len(model.calls) == calls and played.turns[1].reward is None
    if infra == "skip":
        assert model.calls[2].messages[1].content == model.calls[1].messages[1].content
        assert len(model.calls[2].messages) == 3


def test_attempts_of_an_earlier_process_are_taken_up_not_made_again():
    whole, _ = play(by_turn(1.1, "WRONG", 1.5, 1.2), turns=4)
    again, model = play(by_turn(1.1, "WRONG", 1.5, 1.2), turns=4, done=whole.turns[:2])
    assert [call.turn for call in model.calls] == [3, 4]
    assert again.turns == whole.turns


def test_an_answer_without_code_is_graded_without_the_pool():
    pool = TextPool()
    played, model = play(lambda call: "I cannot.", pool=pool, turns=2)
    assert pool.requests == [] and played.turns[0].verdict.status == "compile_error"
    assert "no ```python code block" in model.calls[1].messages[2].content


def test_cancellation_keeps_what_was_told_of():
    async def go():
        model, told = FunctionModel(by_turn(1.1, 1.2, 1.3)), []
        episode = Episode(TextPool(), EpisodeConfig(turns=3))
        await episode.reset(TASK)
        job = asyncio.create_task(play_episode(episode, model, on_turn=told.append))
        while not told:
            await asyncio.sleep(0)
        job.cancel()
        with pytest.raises(asyncio.CancelledError):
            await job
        return told

    assert len(asyncio.run(go())) == 1
