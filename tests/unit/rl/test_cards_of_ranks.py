"""Whose card is whose: ranks of torchrun, the policy and the judge."""

import pytest
import torch
import torch.distributed as dist

from drkernel.rl.model import distributed
from drkernel.rl.run.estimate import lacking, shared_card
from drkernel.rl.run.recipe import Recipe, of_rank


def recipe(judge: str, policy: str = "auto") -> Recipe:
    return Recipe.model_validate({"policy": {"device": policy}, "episode": {"settings": {"device": judge}}})


def test_a_rank_measures_on_a_card_of_its_own():
    assert [of_rank(recipe("cuda:0"), rank).episode.settings.device for rank in range(3)] == [
        "cuda:0",
        "cuda:1",
        "cuda:2",
    ]
    assert of_rank(recipe("cuda:4"), 2).episode.settings.device == "cuda:6"
    simulated = recipe("sim:h200")
    assert of_rank(simulated, 3) is simulated


@pytest.mark.parametrize(
    "judge, policy, ranks, shared",
    [
        ("cuda:0", "auto", 1, True), ("cuda:1", "auto", 1, False), ("cuda:1", "cuda:1", 1, True),
        ("cuda:0", "cpu", 1, False), ("sim:h200", "auto", 1, False), ("cuda:3", "auto", 4, True),
        ("cuda:4", "auto", 4, False),
    ],
)  # fmt: skip
def test_judge_and_policy_on_one_card(monkeypatch, judge, policy, ranks, shared):
    monkeypatch.setenv("LOCAL_WORLD_SIZE", str(ranks))
    assert (shared_card(recipe(judge, policy)) is not None) == shared


@pytest.mark.parametrize("cards, here, refused", [(1, True, False), (2, True, True), (2, False, False)])
def test_a_shared_card_is_refused_where_there_is_another(monkeypatch, cards, here, refused):
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: cards)
    said = [one for one in lacking(recipe("cuda:0"), judged_here=here) if "a card for the judge alone" in one]
    assert len(said) == refused and all("episode.settings.device=cuda:1" in one for one in said)


@pytest.mark.parametrize("gpu", [True, False])
def test_a_rank_joins_with_its_card(monkeypatch, gpu):
    """Without it NCCL guesses the card of a barrier."""
    chosen, joined = [], {}
    for name, value in {"WORLD_SIZE": "8", "LOCAL_RANK": "3"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("torch.cuda.is_available", lambda: gpu)
    monkeypatch.setattr("torch.cuda.set_device", chosen.append)
    monkeypatch.setattr(dist, "is_initialized", lambda: False)
    monkeypatch.setattr(dist, "init_process_group", lambda backend, **terms: joined.update(terms, backend=backend))
    monkeypatch.setattr(dist, "get_rank", lambda: 3)
    monkeypatch.setattr(dist, "get_world_size", lambda: 8)
    assert distributed.start() == distributed.World(3, 8)
    assert joined["device_id"] == (torch.device("cuda", 3) if gpu else None)
    assert joined["backend"] == ("cpu:gloo,cuda:nccl" if gpu else "gloo") and chosen == [3] * gpu
