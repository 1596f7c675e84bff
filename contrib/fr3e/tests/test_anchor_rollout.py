"""FR3E's rollouts: partial answers go on from the least certain places, and train what they drew themselves."""

import asyncio
from functools import cache

import pytest
import torch

from contrib.fr3e.rollout import AnchorConfig, AnchorRollout
from contrib.fr3e.shape import AnchorShape, StateBatch
from drkernel.config import ConfigError
from drkernel.engines.verl.translate import translate
from drkernel.episode.episode import Episode, EpisodeConfig
from drkernel.episode.records import distinct_turns
from drkernel.rl.data.teacher.problem import generate_tasks
from drkernel.rl.model.answerer import SamplerAnswerer
from drkernel.rl.model.policy import Example, Policy, PolicyConfig
from drkernel.rl.model.sampler import Sampler, SamplingConfig
from drkernel.rl.run.recipe import check_recipe
from drkernel.rl.run.registry import advantage
from drkernel.rl.run.rollout import plan_jobs
from drkernel.rl.run.rows import Rows
from drkernel.rl.run.sitting import Stopped
from drkernel.rl.run.trainer import Run
from fakes import FakePool, make_verdict, tiny_recipe
from recorded import check_advantage, random_turns
from tiny import POCKET, tiny_tokenizer
from tiny_runs import assert_same_run, rows, train

torch.set_num_threads(1)
TASKS = list(generate_tasks("train", 2, 0))
ANCHORS = {"bases": 2, "keep": "all", "count": 2, "samples": 3}


@cache
def policy():
    """One policy for all tests of this file."""
    terms = PolicyConfig(pocket=POCKET.model_copy(update={"context": 2048}), device="cpu")
    return Policy.from_scratch(terms, tiny_tokenizer(), 0)


def play(anchors, turns=2, rows=4, waves=2, pool=None):
    sampler = Sampler(policy().make_decoder(rows, 2048), policy().tokenizer, SamplingConfig(max_tokens=12, rows=rows))
    terms = EpisodeConfig(turns=turns, prompts="compact")
    pool = pool or FakePool()
    answerer = SamplerAnswerer(sampler, policy().tokenizer)
    rollout = AnchorRollout(answerer, lambda: Episode(pool, terms), AnchorConfig(**anchors), waves=waves)
    return asyncio.run(rollout.play(plan_jobs(TASKS, 1, 1))), rollout


def base_plays(rollout):
    """The base rollouts, as the partial ones' jobs hold them."""
    return {
        (play.job.group, play.job.base.job.sample): play.job.base
        for play in rollout._played
        if play.job.base is not None
    }


@pytest.mark.parametrize("by", ["logprob", "entropy"])
def test_partial_rollouts_go_on_from_the_least_certain_tokens(by):
    trajectories, rollout = play({**ANCHORS, "by": by})
    assert len(trajectories) == 2 * 3 * (1 + 2 * 2)
    bases = base_plays(rollout)
    assert len(bases) == 4
    for (group, base), found in bases.items():
        doubts = []
        for turn in found.episode.path:
            drawn = turn.sampled
            ids = drawn.context_ids + drawn.token_ids
            mask = [k >= len(drawn.context_ids) for k in range(len(ids))]
            with torch.no_grad():
                figures = policy().statistics([Example(ids, mask)])
            values = figures.logprobs if by == "logprob" else -figures.entropy
            doubts += [(float(x), turn.number, k) for k, x in enumerate(values)]
        doubts = sorted(each for each in doubts if each[1:] != (1, 0))
        origins = sorted({(t.origin.turn, t.origin.token) for t in trajectories
                          if t.group == group and t.origin.order and t.origin.base == base})  # fmt: skip
        assert origins == sorted(each[1:] for each in doubts[:2])
        for t in (t for t in trajectories if t.group == group and t.origin.order and t.origin.base == base):
            turn, then = t.turns[t.origin.turn - 1], found.episode.path[t.origin.turn - 1]
            assert turn.sampled.context_ids == then.sampled.context_ids
            assert turn.sampled.token_ids[: t.origin.token] == then.sampled.token_ids[: t.origin.token]
            assert len(t.turns) == 2 and t.turns[: t.origin.turn - 1] == tuple(found.episode.path[: t.origin.turn - 1])
    whole = [tuple(turn.reply.text for turn in t.turns) for t in trajectories if t.origin.order == 0]
    assert len(set(whole)) == len(whole) == 6


def test_only_what_a_partial_rollout_drew_is_trained():
    trajectories, rollout = play(ANCHORS)
    shape = AnchorShape(**ANCHORS)
    rows_ = Rows.of(trajectories, shape.lay_out)
    batch = shape.batch(rows_.batch(), trajectories)
    drawn = sum(
        turn.tokens - (t.origin.token if turn.number == t.origin.turn else 0)
        for t in trajectories for turn in t.turns[t.origin.turn - 1 :]
    )  # fmt: skip
    assert int(rows_.mask_BT.sum()) == drawn
    bases = sum(turn.tokens for play_ in base_plays(rollout).values() for turn in play_.episode.path)
    assert rollout.stats.tokens == drawn + bases
    assert rollout.stats.graded == len(distinct_turns(trajectories)) + 8
    assert batch.state_B.unique().numel() == 2 * (1 + 4)
    for row, part in enumerate(rows_.stretches):
        origin = trajectories[part.owner].origin
        assert (int(batch.before_B[row]) == -1) == (origin.order == 0)
        if origin.order:
            place = {
                int(batch.state_B[k]): trajectories[rows_.stretches[k].owner].origin for k in range(len(batch.state_B))
            }
            before = place[int(batch.before_B[row])]
            assert before.order == origin.order - 1 and (before.order == 0 or before.base == origin.base)
    # log-probabilities of what is trained are the sampler's, of the head they are not asked for
    for sequence in rows_.sequences:
        with torch.no_grad():
            found = policy().statistics([Example(sequence.ids, mask_of(rows_, sequence))]).logprobs
        sampled = torch.cat([rows_.rollout_BT[row][rows_.mask_BT[row]] for row in sequence.rows])
        assert float((found - sampled).abs().max()) < 1e-4


def mask_of(rows_, sequence):
    return [any(a <= k < b for a, b in sequence.spans) for k in range(len(sequence.ids))]


def test_the_same_rollouts_whatever_the_batch():
    texts = [
        [(t.group, t.sample, t.origin, [turn.reply.text for turn in t.turns]) for t in play(ANCHORS, **terms)[0]]
        for terms in ({"rows": 4, "waves": 2}, {"rows": 3, "waves": 1, "pool": FakePool(delay=0.002)})
    ]
    assert sorted(texts[0], key=str) == sorted(texts[1], key=str)


def test_one_right_and_one_wrong_base_rollout_are_kept():
    trajectories, _ = play({**ANCHORS, "keep": "right_and_wrong"})
    assert {t.origin.base for t in trajectories} == {0}, "all are wrong here: the first one"
    assert len(trajectories) == 2 * 3 * (1 + 2)


def test_the_advantage_by_name_needs_states():
    plain = random_turns()
    state = plain.trajectory_B // 2  # two states of a task, two rollouts from each
    columns = {name: value for name, value in vars(plain).items() if value is not None}
    check_advantage("fr3e", StateBatch(**columns, state_B=state, before_B=torch.where(state % 2 == 0, -1, state - 1)))
    with pytest.raises(ValueError, match="needs state_B, before_B"):
        advantage.get("fr3e")(plain)


def anchor_recipe(directory, anchors=None, sampling=None, **learner):
    learner = {"lr": 0.003, "advantage": {"name": "fr3e"}, **learner}
    shape = {"name": "anchors", "bases": 3, "count": 1, "samples": 3, **(anchors or {})}
    rollout = {"tasks": 2, "context": 250, "shape": shape}
    rollout["sampling"] = {"max_tokens": 40, "rows": 16, **(sampling or {})}
    rl, few = {"steps": 2, "learner": learner}, {"final_tasks": 2, "final_samples": 1, "tasks": 2}
    return tiny_recipe(directory, sft={"epochs": 3}, rollout=rollout, rl=rl, evaluation=few)


def test_a_recipe_trains_with_anchors_and_resumes(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    whole, stopped = anchor_recipe(tmp_path / "a"), anchor_recipe(tmp_path / "b")
    train(whole)
    steps = [row for row in rows(whole, "metrics.jsonl") if row["stage"] == "rl"]
    assert len(steps) == 2 and all(row["left_out"] == 0 and row["skipped"] == 0 for row in steps)
    assert all(0 < row["trained_tokens"] < row["tokens"] for row in steps), "base rollouts are not trained"
    run = Run(stopped, FakePool(delay=0.002))

    def progress(kind, row):
        run.stop_requested = run.stop_requested or (kind, row.get("step")) == ("rl", 1)

    run.progress = progress
    with pytest.raises(Stopped):
        asyncio.run(run.run())
    train(stopped)
    assert_same_run(whole, stopped)


def test_base_rollouts_without_a_grade_get_no_anchors():
    pool = FakePool(verdict=lambda request: make_verdict(request, "infra_error"))
    trajectories, _ = play({**ANCHORS, "by": "entropy"}, pool=pool)
    assert trajectories


def test_what_cannot_be_combined_is_refused(tmp_path):
    recipe = anchor_recipe(tmp_path)
    check_recipe(recipe)
    with pytest.raises(ConfigError, match="advantage fr3e"):
        check_recipe(anchor_recipe(tmp_path, advantage={"name": "trloo"}))
    served = recipe.rollout.model_copy(update={"backend": "vllm"})
    with pytest.raises(ConfigError, match="only the local backend can"):
        check_recipe(recipe.model_copy(update={"rollout": served}))
    with pytest.raises(ConfigError, match="anchors: not on verl"):
        translate(anchor_recipe(tmp_path, sampling={"stop_at_fence": False}))
