"""Rollouts under context policies: what is read before a turn is what the policy shows, as it was sampled."""

import asyncio
import json

import pytest

from drkernel.episode.episode import Episode, EpisodeConfig
from drkernel.episode.records import Reply, Turn
from drkernel.episode.renderer import Prompts
from drkernel.gym.request import EvalRequest, EvalSettings
from drkernel.rl.data.problem import generate_tasks
from drkernel.rl.model.policy import Policy, PolicyConfig
from drkernel.rl.model.sampler import Sampler, SamplerAnswerer, SamplingConfig
from drkernel.rl.run.learner import Rows
from drkernel.rl.run.rollout import Rollout, plan_jobs
from drkernel.rl.run.sitting import RunState
from drkernel.rl.run.trainer import Run
from fakes import FakePool, make_verdict, tiny_recipe
from tiny import POCKET, tiny_tokenizer

TASKS = list(generate_tasks("train", 2, 0))


def rollout(context, turns=4, capacity=2048, rows=4, waves=2):
    terms = PolicyConfig(pocket=POCKET.model_copy(update={"context": 2048}), device="cpu")
    policy = Policy.from_scratch(terms, tiny_tokenizer(), 0)
    sampling = SamplingConfig(max_tokens=12, rows=rows)
    sampler = Sampler(policy.make_decoder(rows, capacity), policy.tokenizer, sampling)
    terms = EpisodeConfig(turns=turns, prompts="compact", context=context)
    plays = Rollout(SamplerAnswerer(sampler, policy.tokenizer), lambda: Episode(FakePool(), terms), waves=waves)
    return asyncio.run(plays.play(plan_jobs(TASKS, 2, 1))), policy


@pytest.mark.parametrize(("context", "sequences"), [
    ("full", 1), ({"name": "last", "keep": 1}, 3), ("afresh", 4), ({"name": "best", "keep": 4}, 1),
])  # fmt: skip
def test_a_turn_reads_what_its_policy_shows(context, sequences):
    trajectories, policy = rollout(context)
    tokenizer = policy.tokenizer
    assert len(trajectories) == 4
    for trajectory in trajectories:
        made = {turn.id: turn for turn in trajectory.turns}
        assert len(made) == 4 and trajectory.end == "turns"
        for turn in trajectory.turns:
            expected = list(tokenizer.prompt_ids(trajectory.opening[-1].content))
            for shown in (made[name] for name in turn.shown):
                told = tokenizer.feedback_ids(shown.feedback, ended=shown.sampled.stop == "end")
                expected += [*shown.sampled.token_ids, *told]
            assert list(turn.sampled.context_ids) == expected
            assert tokenizer.decode(turn.sampled.token_ids) == turn.reply.text
    rows = Rows.of(trajectories)
    assert len(rows.sequences) == sequences * len(trajectories)
    assert sorted(row for sequence in rows.sequences for row in sequence.rows) == list(range(16))


def test_a_conversation_that_would_not_fit_is_shown_less():
    tokenizer = tiny_tokenizer()
    asked = [Prompts.load("compact").opening(task, EvalSettings())[-1].content for task in TASKS]
    longest = max(len(tokenizer.prompt_ids(text)) for text in asked)
    capacity = longest + 250
    long, _ = rollout("full", turns=12, capacity=capacity)
    cut, _ = rollout({"name": "best", "keep": 8}, turns=12, capacity=capacity)
    assert {trajectory.end for trajectory in long} == {"context"}
    assert {trajectory.end for trajectory in cut} == {"turns"}
    for turn in (turn for trajectory in cut for turn in trajectory.turns):
        assert len(turn.sampled.context_ids) + 12 <= capacity


def test_what_is_drawn_does_not_depend_on_the_batch_or_on_the_waves():
    context = {"name": "best", "keep": 1}
    one, other = rollout(context, rows=4, waves=2)[0], rollout(context, rows=2, waves=1)[0]
    assert [[turn.reply.text for turn in t.turns] for t in one] == [
        [turn.reply.text for turn in t.turns] for t in other
    ]


def test_a_recipe_trains_with_context_management(tmp_path):
    episode = {"turns": 3, "prompts": "compact", "context": {"name": "best", "keep": 1}}
    recipe = tiny_recipe(tmp_path, episode=episode, rl={"steps": 2, "log_samples": 4})
    asyncio.run(Run(recipe, FakePool()).run())
    run = tmp_path / "runs" / "tiny"
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    steps = [row for row in rows if row["stage"] == "rl"]
    assert len(steps) == 2 and all(row["trained_tokens"] > 0 for row in steps)
    samples = [json.loads(line) for line in (run / "samples.jsonl").read_text().splitlines()]
    shown = [len(turn["shown"]) for row in samples for turn in row["turns"]]
    assert max(shown) == 1 and {row["split"] for row in samples} == {"train", "heldout"}


def test_the_best_speedups_of_a_run_are_known_to_its_next_jobs():
    first, second = TASKS
    state = RunState()

    def turn(task, speed):
        verdict = make_verdict(EvalRequest(task=task, candidate=""), speedup=speed)
        return Turn(id="0", parent=None, reply=Reply(text=""), verdict=verdict, reward=1.0)

    state.learn_speeds([turn(first, 2.0), turn(first, 1.5), turn(second, None)])
    again = RunState.read(state.to_json(), "here")
    assert [job.known for job in plan_jobs([first, second], 1, 0, known=again.fastest)] == [2.0, 0.0]
