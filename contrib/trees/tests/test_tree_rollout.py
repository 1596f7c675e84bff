"""Trees of turns in rollouts: what forks share is sampled, graded and trained once, and nothing else changes."""

import asyncio

import pytest
import torch
from pydantic import ValidationError

from contrib.trees import maths as trees
from contrib.trees.forks import RepetitionConfig, TreeConfig, copies, repeats
from contrib.trees.rollout import TreeRollout
from contrib.trees.rows import forest_of, lay_out_paths
from contrib.trees.shape import TreeShape
from drkernel.config import ConfigError
from drkernel.engines.verl.translate import translate
from drkernel.episode.episode import Episode, EpisodeConfig
from drkernel.episode.records import distinct_turns
from drkernel.rl.data.teacher.problem import generate_tasks
from drkernel.rl.model.answerer import SamplerAnswerer
from drkernel.rl.model.policy import Example, Policy, PolicyConfig
from drkernel.rl.model.sampler import Sampler, SamplingConfig
from drkernel.rl.run.learner import Learner, LearnerConfig
from drkernel.rl.run.recipe import check_recipe
from drkernel.rl.run.rollout import plan_jobs
from drkernel.rl.run.rows import Rows, lay_out
from drkernel.rl.run.sitting import Stopped
from drkernel.rl.run.trainer import Run
from fakes import FakePool, tiny_recipe
from tiny import POCKET, tiny_tokenizer
from tiny_runs import assert_same_run, rows, train

torch.set_num_threads(1)
TASKS = list(generate_tasks("train", 2, 0))
TREE = {"width": 4, "branching": 2}
_policies = []


def policy():
    """One policy for all tests of this file."""
    if not _policies:
        terms = PolicyConfig(pocket=POCKET.model_copy(update={"context": 2048}), device="cpu")
        _policies.append(Policy.from_scratch(terms, tiny_tokenizer(), 0))
    return _policies[0]


class Counted:
    """A decoder that counts the tokens it reads and steps over."""

    def __init__(self, decoder):
        self._decoder, self.read = decoder, 0

    def __getattr__(self, name):
        return getattr(self._decoder, name)

    def extend(self, rows, ids):
        self.read += sum(map(len, ids))
        return self._decoder.extend(rows, ids)


def play(tree, turns=3, rows=4, waves=2, context="full", pool=None, max_tokens=12, capacity=2048):
    sampling = SamplingConfig(max_tokens=max_tokens, rows=rows)
    decoder = Counted(policy().make_decoder(rows, capacity))
    sampler = Sampler(decoder, policy().tokenizer, sampling)
    terms = EpisodeConfig(turns=turns, prompts="compact", context=context)
    pool = pool or FakePool(delay=0.0005)
    answerer = SamplerAnswerer(sampler, policy().tokenizer)
    rollout = TreeRollout(answerer, lambda: Episode(pool, terms), TreeConfig(**tree), waves=waves)
    return asyncio.run(rollout.play(plan_jobs(TASKS, 1, 1))), rollout, decoder, pool


def texts(trajectories):
    return [(t.group, t.sample, [(turn.id, turn.reply.text) for turn in t.turns]) for t in trajectories]


def test_a_tree_is_sampled_and_graded_once():
    trajectories, rollout, decoder, _ = play(TREE)
    turns = distinct_turns(trajectories)
    assert len(trajectories) == 8 and all(len(t.turns) == 3 for t in trajectories)
    assert [len({turn.id for t in trajectories if t.group == 0 for turn in t.turns if turn.number == k})
            for k in (1, 2, 3)] == [2, 4, 4]  # fmt: skip
    assert len(turns) == rollout.stats.graded == 2 * TreeConfig(**TREE).turns(3) == 2 * 10
    assert rollout.stats.tokens == sum(turn.tokens for turn in turns)
    for t in trajectories:
        for before, turn in zip(t.turns, t.turns[1:], strict=False):
            assert turn.parent == before.id and turn.sampled.context_ids[: len(before.sampled.context_ids)] == (
                before.sampled.context_ids
            )
    # prompts are read once a task, and of every graded turn that goes on its last token and the feedback once
    told = {}
    for t in trajectories:
        for before, turn in zip(t.turns, t.turns[1:], strict=False):
            told[t.group, before.id] = len(turn.sampled.context_ids) - len(before.sampled.context_ids) - before.tokens
    prompts = sum(len(trajectories[i].turns[0].sampled.context_ids) for i in (0, 4))
    assert decoder.read == prompts + sum(told.values()) + len(told)


@pytest.mark.parametrize("tree", [TREE, {**TREE, "at": "segment", "segment": 5, "width": 5}])
def test_log_probabilities_are_those_of_a_full_forward(tree):
    trajectories, *_ = play(tree)
    rows_ = Rows.of(trajectories, lay_out_paths)
    for part, sequence in ((rows_.stretches[row], s) for s in rows_.sequences for row in s.rows):
        begin = len(part.turn.sampled.context_ids)
        mask = [begin + part.start <= k < begin + part.end for k in range(len(sequence.ids))]
        with torch.no_grad():
            found = policy().statistics([Example(sequence.ids, mask)]).logprobs
        sampled = torch.tensor(part.turn.sampled.logprobs[part.start : part.end])
        assert float((found - sampled).abs().max()) < 1e-4


@pytest.mark.parametrize("tree", [
    TREE, {**TREE, "at": "segment", "segment": 5, "width": 6},
])  # fmt: skip
def test_what_is_drawn_does_not_depend_on_the_batch_or_on_the_waves(tree):
    first = texts(play(tree, rows=4, waves=2, pool=FakePool())[0])
    assert first == texts(play(tree, rows=3, waves=1, pool=FakePool(delay=0.002))[0])


def test_siblings_draw_different_answers():
    trajectories, *_ = play({"width": 8, "branching": 2})
    answers = {}
    for turn in distinct_turns(t for t in trajectories if t.group == 0):
        answers.setdefault(turn.parent, []).append(turn.reply.text)
    assert all(len(set(found)) == len(found) == 2 for found in answers.values())


def test_segments_fork_within_answers_and_every_token_is_trained_once():
    trajectories, rollout, *_ = play({"width": 6, "branching": 2, "at": "segment", "segment": 4}, turns=2)
    per_task = [sum(t.group == g for t in trajectories) for g in (0, 1)]
    assert per_task == [6, 6]
    rows_ = Rows.of(trajectories, lay_out_paths)
    assert int(rows_.mask_BT.sum()) == rollout.stats.tokens, "what was sampled is trained, each token once"
    shared = [part for part in rows_.stretches if not part.last]
    assert shared and all(part.trains for part in shared), "forks within answers"
    batch = rows_.batch()
    forest = forest_of(batch)
    assert (forest.children_B[[not part.last for part in rows_.stretches]] > 1).all(), "a stretch ends where it forks"
    # a shared stretch earns the mean of what its forks earn, without a discount in between
    returns = forest.returns(batch.rewards_B, gamma=0.5)
    for row, part in enumerate(rows_.stretches):
        below = [k for k, other in enumerate(rows_.stretches) if other.parent == row]
        if not part.last:
            assert float(returns[row]) == pytest.approx(sum(float(returns[k]) for k in below) / len(below))
    for sequence in rows_.sequences:
        for row, (start, end) in zip(sequence.rows, sequence.spans, strict=True):
            part = rows_.stretches[row]
            assert sequence.ids[start:end] == part.turn.sampled.token_ids[part.start : part.end]


def test_the_learners_gradient_is_that_of_every_path_written_out():
    """Σ over paths of Σ over their turns, each turn weighed by its chance over the paths that hold it."""
    trajectories, *_ = play({"width": 5, "branching": 2}, turns=3)
    g = torch.Generator().manual_seed(0)
    rewards = {(t.group, turn.id): float(torch.rand((), generator=g)) for t in trajectories for turn in t.turns}
    trajectories = [
        t.model_copy(update={"turns": tuple(x.model_copy(update={"reward": rewards[t.group, x.id]}) for x in t.turns)})
        for t in trajectories
    ]
    config = LearnerConfig(lr=1e-9, clip=1e9, advantage={"name": "treepo_loo"}, loss={"name": "reinforce"}, mismatch=[])
    model = policy()
    learner = Learner(model, torch.optim.SGD(model.trainable(), lr=1e-9), config, shape=TreeShape(**TREE))
    prepared, _ = learner._prepare(trajectories, 0)
    model.model.zero_grad()
    everything, total = list(range(len(prepared.rows.sequences))), float(len(prepared.rows.stretches))
    loss, _ = learner._loss(prepared, everything, prepared.rows.pick(everything), total)
    loss.backward()
    got = torch.cat([p.grad.flatten() for p in model.trainable()])
    # by hand, one path after the other
    batch = prepared.rows.batch()
    forest = forest_of(batch)
    advantage = trees.treepo_loo(forest.returns(batch.rewards_B), forest)
    chances = trees.path_weights(forest)
    weights = chances * len(chances) / chances.sum()
    index = {(t.owner, t.turn.id): row for row, t in enumerate(prepared.rows.stretches)}
    place = {(trajectories[owner].group, name): row for (owner, name), row in index.items()}
    holders = {}
    for t in trajectories:
        for turn in t.turns:
            holders[t.group, turn.id] = holders.get((t.group, turn.id), 0) + 1
    model.model.zero_grad()
    for t in trajectories:
        for turn in t.turns:
            ids = turn.sampled.context_ids + turn.sampled.token_ids
            mask = [k >= len(turn.sampled.context_ids) for k in range(len(ids))]
            row = place[t.group, turn.id]
            scale = float(advantage[row] * weights[row]) / holders[t.group, turn.id] / total
            (-scale * model.statistics([Example(ids, mask)]).logprobs.sum()).backward()
    by_hand = torch.cat([p.grad.flatten() for p in model.trainable()])
    assert float((got - by_hand).abs().max()) < 1e-5 * max(1.0, float(by_hand.abs().max()))
    assert float(by_hand.abs().max()) > 1e-3


def test_a_path_that_ends_early_leaves_its_forks_to_the_others():
    rule = {"length": 1, "times": 3}
    trajectories, *_ = play({"width": 6, "branching": 4, "start": 3, "repetition": rule}, turns=2)
    lengths = [[len(t.turns) for t in trajectories if t.group == g] for g in (0, 1)]
    assert any(1 in found and 2 in found for found in lengths), "some paths ended after the first turn, not all"
    for found in lengths:
        assert len(found) == 6 or 2 not in found


def test_the_rule_of_forks():
    config = TreeConfig(width=16, branching=2)
    assert copies(2, 0, 0, 1, config) == [2, 2] and copies(8, 0, 0, 3, config) == [2] * 8
    assert copies(16, 0, 0, 4, config) == [1] * 16
    assert copies(3, 1, 1, 2, config) == [2, 2, 4], "an ended path's forks go to the others, the rest to the last"
    assert copies(3, 13, 0, 5, config) == [1, 1, 1] and copies(0, 5, 1, 2, config) == []
    assert copies(2, 0, 0, 2, config.model_copy(update={"depth": 2})) == [1, 1]
    assert config.turns(3) == 2 + 4 + 8 and TreeConfig(width=4, branching=2).turns(3) == 2 + 4 + 4
    for wrong in ({"width": 2, "start": 3}, {"widht": 3}):
        with pytest.raises(ValidationError):
            TreeConfig(**wrong)


def test_what_repeats():
    rule = RepetitionConfig(length=8, times=4)
    assert repeats("x = load " * 4, rule) and not repeats("x = load " * 3, rule)
    assert not repeats("abc", rule) and repeats("a" * 40, rule)
    assert not repeats("x = load " * 9 + "and then something new", rule)


def test_a_path_that_goes_round_in_circles_is_given_up():
    rule = {"length": 1, "times": 2}
    whole, *_ = play({"width": 2, "branching": 2}, turns=3)
    cut, *_ = play({"width": 2, "branching": 2, "repetition": rule}, turns=3)
    ends = [(t.end, len(t.turns), t.turns[-1].sampled.stop) for t in cut]
    assert any(end == ("repetition", 1, "repetition") for end in ends)
    for t in cut:
        for turn in t.turns:
            text = turn.reply.text
            assert (turn.sampled.stop == "repetition") == repeats(text, RepetitionConfig(**rule))
            assert turn.sampled.stop != "repetition" or turn is t.turns[-1]
    assert all(len(t.turns) == 3 for t in whole)


def tree_recipe(directory, learner=None, tree=None, **changes):
    learner = {"lr": 0.003, "advantage": {"name": "treepo_loo"}, **(learner or {})}
    rollout = {"tasks": 4, "context": 250, "sampling": {"max_tokens": 40, "rows": 16}}
    rollout["shape"] = {"name": "tree", **(tree or TREE)}
    rl = {"steps": 3, "learner": learner}
    return tiny_recipe(directory, **{"sft": {"epochs": 6}, "rollout": rollout, "rl": rl, **changes})


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    recipe = tree_recipe(tmp_path_factory.mktemp("whole"))
    return recipe, train(recipe)


def test_a_recipe_trains_with_trees(finished):
    recipe, summary = finished
    steps = [row for row in rows(recipe, "metrics.jsonl") if row["stage"] == "rl"]
    assert len(steps) == 3
    for row in steps:
        assert row["trajectories"] == 16 and row["evaluations"] == 4 * 6 and row["left_out"] == 0
        assert sum(row["status"].values()) == 24 and row["trained_tokens"] == row["tokens"] > 0
        assert row["mismatch/max_abs_log_ratio"] < 1e-4
    assert summary["evaluations"] >= 3 * 24


@pytest.mark.parametrize("stop_at", [("rl", 2)])
def test_an_interrupted_run_of_trees_goes_on_to_the_same_result(finished, tmp_path, stop_at):
    recipe = tree_recipe(tmp_path)
    run = Run(recipe, FakePool(delay=0.002))  # grades come back in another order

    def progress(kind, row):
        if (kind, row.get("step")) == stop_at:
            run.stop_requested = True

    run.progress = progress
    with pytest.raises(Stopped):
        asyncio.run(run.run())
    train(recipe)
    assert_same_run(finished[0], recipe)


@pytest.mark.slow
def test_a_crash_in_the_middle_of_a_run_of_trees_repeats_what_was_lost(finished, tmp_path):
    recipe = tree_recipe(tmp_path, checkpoint={"seconds": 1e9})

    def crash(kind, row):
        if (kind, row.get("step")) == ("rl", 3):
            raise RuntimeError("power cut")

    with pytest.raises(RuntimeError, match="power cut"):
        train(recipe, progress=crash)
    train(recipe)
    assert_same_run(finished[0], recipe)


@pytest.mark.parametrize(("learner", "tree"), [
    ({"advantage": {"name": "treepo", "std": True}}, {**TREE, "weights": "leaves"}),
    ({"advantage": {"name": "trloo"}, "updates": 2}, TREE),
    ({"advantage": {"name": "treepo_loo", "subgroups": "nearest"}, "rejection": {"name": "prs"}},
     {"width": 4, "at": "segment", "segment": 8}),
    ({"advantage": {"name": "grpo_std"}},
     {"width": 4, "start": 1, "depth": 2, "weights": "equal"}),
])  # fmt: skip
def test_methods_and_options_run_on_trees(tmp_path, learner, tree):
    recipe = tree_recipe(
        tmp_path, learner, tree, sft={"epochs": 2, "lr": 0.01, "batch_tokens": 300},
        evaluation={"final_tasks": 2, "final_samples": 1},
    )  # fmt: skip
    train(recipe)
    row = rows(recipe, "metrics.jsonl")[-1]
    assert row["stage"] == "rl" and row["skipped"] == 0 and abs(row["loss"]) < 1e3


def test_lost_grades_are_masked_in_trees(tmp_path):
    recipe = tree_recipe(tmp_path)
    train(recipe, FakePool(broken_every=5))
    steps = [row for row in rows(recipe, "metrics.jsonl") if row["stage"] == "rl"]
    assert all(row["infra_errors"] > 0 and row["skipped"] == 0 for row in steps)


@pytest.mark.parametrize("name", ["rloo", "rloo_total", "kevin", "otb", "otb_loo", "otb_tir"])
def test_methods_that_compare_whole_trajectories_are_refused(tmp_path, name):
    with pytest.raises(ConfigError, match="share turns"):
        check_recipe(tree_recipe(tmp_path, {"advantage": {"name": name}}))
    with pytest.raises(ConfigError, match="mask_void_turns"):
        check_recipe(tree_recipe(tmp_path, {"mask_void_turns": True}))


@pytest.mark.slow
def test_reinforcement_learning_on_trees_finds_what_pays(tmp_path):
    tree = {"width": 8, "branching": 2, "start": 4}
    recipe = tree_recipe(tmp_path, {"lr": 0.004}, tree, sft={"epochs": 15}, policy={"pocket": POCKET.model_dump()})
    recipe = recipe.model_copy(update={"rl": recipe.rl.model_copy(update={"steps": 10})})
    summary = train(recipe)
    assert summary["after"]["fast_1.2"] >= summary["before"]["fast_1.2"] + 0.2


def test_verl_is_asked_for_as_many_rows_as_a_tree_has_paths(tmp_path):
    changes = {"max_tokens": 40, "stop_at_fence": False}
    recipe = tree_recipe(tmp_path, tree={"width": 6})
    rollout = recipe.rollout.model_copy(update={"sampling": recipe.rollout.sampling.model_copy(update=changes)})
    made = translate(recipe.model_copy(update={"rollout": rollout}))
    assert made["actor_rollout_ref"]["rollout"]["n"] == made["drkernel"]["shape"]["options"]["width"] == 6


def test_trees_whose_paths_share_nothing_are_laid_out_as_flat_trajectories():
    trajectories, *_ = play({"width": 2, "branching": 2}, turns=2)
    assert lay_out_paths(trajectories)[1] == lay_out(trajectories)[1]
    whole, chains = Rows.of(trajectories, lay_out_paths).batch(), Rows.of(trajectories).batch()
    assert chains.parent_B is None and torch.equal(whole.parent_B, forest_of(chains).parent_B)
