"""verl's layout of a batch against our trainer on the same trajectories: advantages, masks, loss, to 1e-6."""

import pytest
import torch

from drkernel.engines.verl.turns import pack, teach, token_rewards, unpack
from drkernel.rl.maths.losses import clipped
from drkernel.rl.run.learner import Rows, TurnFacts, TurnRows
from recorded import columns, learner, own_loss, trajectories
from tiny import tiny_policy

torch.set_num_threads(1)
ADVANTAGES = (
    "trloo",
    "trloo_best",
    "grpo",
    "grpo_std",
    "rloo",
    "rloo_total",
    "reinforce",
    "kevin",
    "otb",
    "otb_loo",
    "otb_tir",
)
SETTINGS = (
    {},
    {"rejection": {"name": "prs"}},
    {"rejection": {"name": "prs"}, "mismatch": {"name": "tis_token"}},
    {"mismatch": {"name": "tis_sequence"}, "mask_void_turns": True, "aggregation": "token_mean"},
    {"mismatch": [], "aggregation": "seq_mean_token_mean"},
    {"mismatch": {"name": "mrs", "options": {"bounds": (0.9, 1.1)}}, "aggregation": "seq_mean_token_sum"},
)


@pytest.fixture(scope="module")
def batch():
    policy = tiny_policy()
    plays = trajectories(policy)
    return policy, plays, columns(policy, plays)


@pytest.mark.parametrize("advantage", ADVANTAGES)
@pytest.mark.parametrize("number", range(len(SETTINGS)))
def test_a_batch_of_verl_teaches_what_the_trajectories_teach_our_trainer(batch, advantage, number):
    policy, plays, held = batch
    ours = learner(policy, advantage={"name": advantage}, scale=3.0, **SETTINGS[number])
    prepared, metrics = ours._prepare(plays, seed=5)
    rows = TurnRows(held.facts, held.groups, held.mask.shape[1])
    lesson = teach(rows, held.old, held.rollout, held.square, ours.config, seed=5, sequences=7.0)
    width = prepared.mask_BT.shape[1]
    assert torch.equal(rows.take(lesson.mask_BT.long()).bool()[:, :width], prepared.mask_BT)
    wanted = prepared.advantages_BT * prepared.mask_BT
    assert torch.allclose(rows.take(lesson.advantages_BT)[:, :width].double(), wanted.double(), atol=1e-6)
    assert lesson.metrics["rejected_turns"] == metrics["rejected_turns"]
    # the sum over tokens that verl forms, divided by its number of sequences, is our aggregated loss
    now = held.old + 0.05 * torch.randn(held.old.shape, generator=torch.Generator().manual_seed(1))
    token = clipped(now, held.old, lesson.advantages_BT, lesson.mask_BT).loss_BT
    verls = (token * lesson.weights_BT * lesson.mask_BT).sum() / 7.0
    assert abs(float(verls) - float(own_loss(ours, prepared, rows.take(now)[:, :width]))) < 1e-6


def test_the_recorded_batch_holds_what_it_is_for(batch):
    policy, plays, held = batch
    ours = learner(policy, rejection={"name": "prs"})
    prepared, metrics = ours._prepare(plays, seed=5)
    rows = Rows.of(plays)
    assert 0 < int(prepared.mask_BT.sum()) < int(rows.mask_BT.sum())
    assert metrics["rejected_turns"] > 0 and metrics["mismatch/vetoed_sequence_fraction"] > 0
    assert [not fact.graded for facts in held.facts for fact in facts].count(True) == 2
    assert len({len(facts) for facts in held.facts}) == 3


def test_rows_that_fill_a_batch_up_change_nothing(batch):
    _, _, held = batch
    config = learner(batch[0], advantage={"name": "otb"}).config
    plain = teach(
        TurnRows(held.facts, held.groups, held.mask.shape[1]),
        held.old, held.rollout, held.square, config, seed=1, sequences=7.0,
    )  # fmt: skip
    more = [
        torch.cat([values, torch.full((2, values.shape[1]), 3.0)]) for values in (held.old, held.rollout, held.square)
    ]
    rows = TurnRows([*held.facts, [], []], [*held.groups, 8, 9], held.mask.shape[1])
    filled = teach(rows, *more, config, seed=1, sequences=7.0)
    assert torch.equal(filled.advantages_BT[:-2], plain.advantages_BT) and not filled.mask_BT[-2:].any()
    assert torch.equal(filled.weights_BT[:-2], plain.weights_BT)


def test_facts_survive_the_queue_and_rewards_stand_at_the_end_of_their_turn():
    facts = [
        TurnFacts(0, 4, True, 1.25, True, 0.5, 0.25, 1.7),
        TurnFacts(9, 12, False, 0.0, False, 0.0, 0.0, 0.0, 1),
    ]
    assert unpack(pack(facts)) == facts and unpack(pack([])) == []
    rewards = token_rewards(facts, 12)
    assert rewards.nonzero()[:, 0].tolist() == [3] and float(rewards[3]) == 1.25
