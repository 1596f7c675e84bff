"""The multi-turn environment, over a pool whose verdict is a function of the text."""

import pytest

from drkernel.config import ConfigError
from drkernel.episode.episode import Episode, EpisodeConfig
from drkernel.episode.records import Reply, Turn, best_path
from drkernel.episode.renderer import Prompts
from drkernel.gym.request import EvalSettings
from drkernel.gym.reward import RewardConfig
from drkernel.task import Task
from solve_fakes import TextPool, answer
from verdicts import verdict_of

REFERENCE = "import torch\n\nROWS = 4\n\nclass Model(torch.nn.Module):\n    pass\n"
TASK = Task(id="t/one", reference=REFERENCE, profiles={"tiny": {"ROWS": 2}, "full": {"ROWS": 4096}})


async def test_three_turns_with_feedback_between():
    pool = TextPool()
    env = Episode(pool, EpisodeConfig(turns=3))
    first = await env.reset(TASK, seed=5)
    assert first.turn == 1 and "ROWS = 2" in first.text and "ModelNew" in first.text
    one = await env.step(answer(1.5))
    assert one.reward == pytest.approx(0.5 + 0.75 + 0.5) and not one.done
    assert sum(one.turn.parts.values()) == one.reward and one.turn.code == "class ModelNew: SPEED = 1.5\n"
    assert one.observation is not None and "Correct." in one.observation.text and one.observation.turn == 2
    assert [m.role for m in one.observation.messages] == ["user", "assistant", "user"]
    two = await env.step(answer("HACK"))
    assert two.reward == 0.0 and two.verdict.is_hack
    assert two.observation is not None and "no_custom_kernel" in two.observation.text
    three = await env.step(answer(9))
    assert three.done and three.observation is None and three.reward == pytest.approx(0.5 + 1.5 + 0.5)
    assert all(request.settings.seed == 5 for request in pool.requests)


async def test_an_answer_without_code_never_reaches_the_pool():
    pool = TextPool()
    env = Episode(pool, EpisodeConfig(reward=RewardConfig(penalty=-0.2)))
    await env.reset(TASK)
    result = await env.step("I cannot do that.")
    assert result.verdict.status == "compile_error" and result.verdict.error is not None
    assert result.verdict.error.type == "NoCode" and result.reward == -0.2 and result.turn.code is None
    assert result.observation is not None and "no ```python code block" in result.observation.text
    assert pool.requests == []


async def test_an_infra_error_ends_the_episode_and_masks_the_turn():
    env = Episode(TextPool())
    await env.reset(TASK)
    result = await env.step(answer("INFRA"))
    assert result.done and result.reward is None and not result.turn.valid and result.end == "infra_error"


async def test_steps_out_of_order_are_refused():
    env = Episode(TextPool(), EpisodeConfig(turns=1))
    with pytest.raises(RuntimeError, match="reset"):
        await env.step("x")
    await env.reset(TASK)
    assert (await env.step(answer(1))).done
    with pytest.raises(RuntimeError, match="over"):
        await env.step("x")
    again = await env.reset(TASK)
    assert again.turn == 1 and len(again.messages) == 1


async def test_a_task_without_the_profile_is_taken_as_it_is():
    pool = TextPool()
    env = Episode(pool)
    bare = TASK.model_copy(update={"profiles": {}})
    first = await env.reset(bare)
    assert "ROWS = 4" in first.text
    await env.step(answer(1))
    assert pool.requests[0].settings.profile is None


def test_compact_prompts_are_little_more_than_the_reference():
    text = Prompts.load("compact").opening(TASK, EvalSettings())[-1].content
    assert "ROWS = 2" in text and len(text) < len(REFERENCE) + 60


async def test_compact_observations_are_a_line_and_the_task_s_module_as_it_was_first_shown():
    env = Episode(TextPool(), EpisodeConfig(prompts="compact"))
    first = await env.reset(TASK)
    result = await env.step(answer(2))
    assert result.observation is not None
    line, module = result.observation.text.split("\nImprove ModelNew.\n")
    assert line == "correct 2.00x cover 100%" and first.text.endswith(module)


def test_prompts_speak_of_the_declared_precision_and_the_gpu():
    half = TASK.model_copy(update={"precision": "fp16"})
    text = Prompts.load("full").opening(half, EvalSettings(device="sim:h200"))[-1].content
    assert "fp16" in text and "H200" in text and "sim:" not in text and "$" not in text


# ---- trees


async def started(**terms):
    episode = Episode(TextPool(), EpisodeConfig(**terms))
    await episode.reset(TASK)
    return episode


async def test_a_fork_shares_the_past_and_goes_on_by_itself():
    episode = await started(turns=3)
    for speed in (1.1, 1.2):
        await episode.step(answer(speed))
    twin = episode.fork(after=1)
    assert twin.observation.turn == 2 and twin.messages == episode.messages[:3]
    other = await twin.step(answer(1.9))
    assert (other.turn.id, other.turn.parent, other.turn.shown) == ("0.1", "0", ("0",))
    last = await episode.step(answer(1.3))
    assert last.done and last.turn.id == "0.0.0" and last.turn.shown == ("0", "0.0")
    assert "SPEED = 1.9" not in "".join(message.content for message in episode.messages)
    third = await twin.step(answer(2.0))
    assert third.done and third.turn.id == "0.1.0" and third.turn.shown == ("0", "0.1")
    tree = {turn.id: turn for made in (episode, twin) for turn in made.path}
    assert sorted(tree) == ["0", "0.0", "0.0.0", "0.1", "0.1.0"]
    assert [turn.speedup for turn in best_path(tree.values())] == [1.1, 1.9, 2.0]


async def test_forks_of_one_place_are_siblings_whatever_the_order_they_are_played_in():
    episode = await started(turns=2)
    twins = [episode.fork() for _ in range(3)]
    made = [(await one.step(answer(1.5))).turn.id for one in (twins[2], twins[0], episode, twins[1])]
    assert made == ["3", "1", "0", "2"]
    grandchild = twins[0].fork()
    assert [(await one.step(answer(1.5))).turn.id for one in (grandchild, twins[0])] == ["1.1", "1.0"]


async def test_a_fork_after_the_end_may_go_on_from_an_earlier_turn():
    episode = await started(turns=2)
    with pytest.raises(ValueError, match="there are 0"):
        episode.fork(after=1)
    for speed in (1.1, 1.2):
        await episode.step(answer(speed))
    again = episode.fork(after=0)
    assert again.messages == episode.messages[:1] and (await again.step(answer(2))).turn.id == "1"
    with pytest.raises(RuntimeError, match="over"):
        await episode.fork().step(answer(1))


async def test_turns_that_were_graded_before_are_taken_up_in_their_place():
    episode = await started(turns=3)
    first = (await episode.step(answer(1.1))).turn
    second = (await episode.step(answer(1.2))).turn
    again = await started(turns=3)
    with pytest.raises(ValueError, match="the next one is 0"):
        again.take(second)
    again.take(first)
    again.take(Turn.model_validate_json(second.model_dump_json()))
    assert again.messages == episode.messages and again.pool.requests == []


def test_a_turn_names_the_parent_that_its_id_says():
    verdict = verdict_of("incorrect")
    with pytest.raises(ValueError, match="cannot have the parent"):
        Turn(id="0.1", parent=None, reply=Reply(text=""), verdict=verdict, reward=0.0)


# ---- context policies


@pytest.mark.parametrize(("context", "shown"), [
    ("full", [1, 2, 3, 4, 5]),
    ("best", [1, 3, 4, 5]),
    ({"name": "best", "keep": 2}, [3, 5]),
    ({"name": "best", "keep": 2, "every": 4}, [3, 4, 5]),
    ({"name": "best_window", "keep": 2}, [3, 4]),
    ({"name": "best_window", "keep": 3}, [3, 4, 5]),
    ({"name": "last", "keep": 2}, [4, 5]),
    ("afresh", []),
])  # fmt: skip
async def test_what_a_policy_shows_the_sixth_turn(context, shown):
    episode = await started(turns=6, context=context)
    for speed in (1.5, 1.0, 2.9, 1.6, 2.0):
        await episode.step(answer(speed))
    assert [turn.number for turn in episode.shown] == shown
    roles = [message.role for message in episode.messages]
    assert roles == ["user", *(["assistant", "user"] * len(shown))]
    assert [m.content.count("SPEED") for m in episode.messages if m.role == "assistant"] == [1] * len(shown)


async def test_a_fork_is_shown_what_its_own_past_says():
    episode = await started(turns=6, context={"name": "best", "keep": 1})
    for speed in (1.5, 2.9, 1.2):
        await episode.step(answer(speed))
    twin = episode.fork(after=1)
    assert [turn.number for turn in episode.shown] == [2] and [turn.number for turn in twin.shown] == [1]


async def test_a_grader_that_failed_is_left_out_where_it_may_be():
    episode = await started(turns=3, infra="skip")
    await episode.step(answer(1.5))
    result = await episode.step(answer("INFRA"))
    assert not result.done and [turn.number for turn in episode.shown] == [1]
    third = await episode.step(answer(1.7))
    assert third.turn.parent == "0.0" and third.turn.shown == ("0",) and third.end == "turns"


@pytest.mark.parametrize(("context", "message"), [
    ("bset", "unknown context policy 'bset'; known: afresh, best"),
    ({"name": "best", "kepe": 2}, "best has no option 'kepe'; it has: every, keep"),
    ({"name": "last", "keep": -1}, "keep: Input should be greater"),
])  # fmt: skip
def test_mistakes_in_a_policy_are_named(context, message):
    with pytest.raises(ConfigError, match=message):
        EpisodeConfig(context=context).check()


async def test_answers_above_the_best_so_far_are_asked_to_be_compared():
    """What a conversation, or those before it, already had is the bar; where all or none are compared there is none."""
    pool = TextPool()
    for share in (0.25, 1.0, 0.0):
        env = Episode(pool, EpisodeConfig(turns=4, settings=EvalSettings(exact=share)))
        await env.reset(TASK, known=1.2)
        for speed in (0.5, 2.0, 1.5, 3.0):
            await env.step(answer(speed))
    assert [request.settings.exact_above for request in pool.requests] == [1.2, 1.2, 2.0, 2.0, *[None] * 8]
