"""Trees in verl's layout against our trainer on the same paths, and their play by requests."""

import asyncio
from types import SimpleNamespace

import pytest
import torch

from contrib.trees.forks import TreeConfig
from contrib.trees.rollout import TreeRollout
from contrib.trees.rows import lay_out_paths, path_facts
from contrib.trees.shape import TreeShape
from drkernel.engines.verl.turns import VerlSampler, pack, teach, unpack
from drkernel.episode.episode import Episode, EpisodeConfig
from drkernel.rl.data.teacher.problem import generate_tasks
from drkernel.rl.maths.losses import clipped
from drkernel.rl.model.answerer import SamplerAnswerer
from drkernel.rl.model.policy import Policy, PolicyConfig
from drkernel.rl.model.sampler import Conversation, Sampler, SamplingConfig
from drkernel.rl.run.rollout import plan_jobs
from drkernel.rl.run.rows import Rows, TurnRows
from fakes import FakePool
from recorded import learner, own_loss, scored
from tiny import POCKET, tiny_tokenizer

torch.set_num_threads(1)
TREES = {"turns": {"width": 4}, "segments": {"width": 4, "at": "segment", "segment": 5}}
SETTINGS = (
    ("paths", {}),
    ("leaves", {"rejection": {"name": "prs"}, "aggregation": "token_mean"}),
    ("equal", {"mismatch": {"name": "tis_sequence"}, "aggregation": "seq_mean_token_mean"}),
)


@pytest.fixture(scope="module")
def policy():
    terms = PolicyConfig(pocket=POCKET.model_copy(update={"context": 2048}), device="cpu")
    return Policy.from_scratch(terms, tiny_tokenizer(), 0)


@pytest.fixture(scope="module", params=list(TREES))
def played(policy, request):
    """Two trees, drawn through requests of the form that verl answers; some grades fail."""
    config = SamplingConfig(max_tokens=12, rows=4)
    own = Sampler(policy.make_decoder(4, 2048), policy.tokenizer, config)
    seeds = iter(range(1000))

    async def ask(ids, room):
        conversation = Conversation(next(seeds), budget=room)
        async for _, turn in own.stream([conversation], [ids], keep_cache=False):
            return turn.token_ids, turn.logprobs
        raise AssertionError

    config = config.model_copy(update={"rows": 1})  # our sampler takes one call at a time
    answerer = SamplerAnswerer(VerlSampler(ask, policy.tokenizer, config, 2048), policy.tokenizer)
    pool, terms = FakePool(broken_every=9), EpisodeConfig(turns=3, prompts="compact", infra="skip")
    rollout = TreeRollout(answerer, lambda: Episode(pool, terms), TreeConfig(**TREES[request.param]))
    return asyncio.run(rollout.play(plan_jobs(list(generate_tasks("train", 2, 0)), 1, 1)))


def left(values_BT, stretches):
    """Our trainer's tokens, pushed to the left: it keeps a stretch where it lies in its answer."""
    made = torch.zeros_like(values_BT)
    for row, part in enumerate(stretches):
        made[row, : part.end - part.start] = values_BT[row, part.start : part.end]
    return made


def in_verls_layout(policy, paths):
    """Facts, and the columns that verl computes for every path by itself."""
    trees = [[path for path in paths if path.group == group] for group in (0, 1)]
    facts = [path_facts(tree) for tree in trees]
    before = (0, 1 + max(fact.node for own in facts[0] for fact in own))
    stretches = Rows.of(paths, lay_out_paths).stretches
    ours = [
        left(values, stretches)
        for values in (*scored(policy, paths, lay_out_paths), Rows.of(paths, lay_out_paths).rollout_BT)
    ]
    rows = [*facts[0], *facts[1]]
    size = (len(paths), max(fact.end for own in rows for fact in own))
    columns = [torch.zeros(size) for _ in ours]
    for b, (path, own) in enumerate(zip(paths, rows, strict=True)):
        for fact in own:
            for column, values in zip(columns, ours, strict=True):
                column[b, fact.start : fact.end] = values[before[path.group] + fact.node, : fact.end - fact.start]
    return rows, columns, stretches


@pytest.mark.parametrize("advantage", ["treepo_loo", "treepo", "trloo", "reinforce"])
@pytest.mark.parametrize("number", range(len(SETTINGS)))
def test_the_paths_of_a_tree_teach_what_they_teach_our_trainer(policy, played, advantage, number):
    weights, settings = SETTINGS[number]
    ours, shape = learner(policy, advantage={"name": advantage}, scale=3.0, **settings), TreeShape(weights=weights)
    ours.shape = shape
    prepared, metrics = ours._prepare(played, seed=5)
    facts, (old, square, rollout), stretches = in_verls_layout(policy, played)
    weights = SimpleNamespace(weights_BT=left(prepared.mismatch.weights_BT, stretches))
    names = ("mask_BT", "old_BT", "advantages_BT")
    turned = {name: left(getattr(prepared, name), stretches) for name in names}
    prepared = SimpleNamespace(mismatch=weights, reference_BT=None, **turned)
    assert [unpack(pack(own)) for own in facts] == facts
    rows = TurnRows(facts, [path.group for path in played], old.shape[1])
    assert len(rows.facts) == len(prepared.mask_BT) < sum(map(len, facts))
    lesson = teach(rows, old, rollout, square, ours.config, seed=5, sequences=7.0, shape=shape)
    width = prepared.mask_BT.shape[1]
    assert torch.equal(rows.take(lesson.mask_BT.long()).bool()[:, :width], prepared.mask_BT)
    assert int(lesson.mask_BT.sum()) == int(prepared.mask_BT.sum()) > 0  # a shared turn trains in one path
    wanted = prepared.advantages_BT * prepared.mask_BT
    assert torch.allclose(rows.take(lesson.advantages_BT)[:, :width].double(), wanted.double(), atol=1e-6)
    assert lesson.metrics["rejected_turns"] == metrics["rejected_turns"]
    now = old + 0.05 * torch.randn(old.shape, generator=torch.Generator().manual_seed(1))
    token = clipped(now, old, lesson.advantages_BT, lesson.mask_BT).loss_BT
    verls = (token * lesson.weights_BT * lesson.mask_BT).sum() / 7.0
    assert abs(float(verls) - float(own_loss(ours, prepared, rows.take(now)[:, :width]))) < 1e-6
