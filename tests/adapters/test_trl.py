"""The TRL adapter: bookkeeping of ids and masks, and two steps of GRPOTrainer itself where TRL is installed."""

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from solve_fakes import TextPool, answer, make_tasks

from drkernel.adapters.trl import FIELD, dataset_rows, kernel_reward, make_rollout_func
from drkernel.episode.episode import EpisodeConfig
from drkernel.rl.model.tokenizer import ChatTokenizer, train_tokenizer

sys.path.insert(0, str(Path(__file__).parents[1] / "rl"))

TASKS = make_tasks(2)
CONFIG = EpisodeConfig(turns=2, prompts="compact")


@pytest.fixture(scope="module")
def tokenizer():
    texts = [row["prompt"][0]["content"] for row in dataset_rows(TASKS, CONFIG)] + [answer(1.5)] * 3
    return train_tokenizer(texts, 400, "code")


def rollout(tokenizer, answers, prompts, limit=400, logprobs=True, **options):
    """The rollout's output when every conversation gets the answers of its row in ``answers``, in order."""
    made = [list(texts) for texts in answers]
    seen: list[list[list[int]]] = []

    def generate(trainer, ids):
        seen.append(ids)
        rows = [row for row in made if row]
        drawn = [[*tokenizer.encode(row.pop(0)), tokenizer.end_id] for row in rows[: len(ids)]]
        return drawn, [[-0.5] * len(ids) for ids in drawn] if logprobs else None

    trainer = SimpleNamespace(processing_class=tokenizer.hf, args=SimpleNamespace(max_completion_length=limit))
    function = make_rollout_func(TASKS, CONFIG, pool=TextPool(), generate=generate, **options)
    return function([dataset_rows(TASKS, CONFIG)[i]["prompt"] for i in prompts], trainer), seen


def test_sampled_ids_are_kept_and_the_grader_s_are_masked(tokenizer):
    out, seen = rollout(tokenizer, [[answer(1.5), answer(2.0)], [answer("WRONG"), answer(1.0)]], [0, 1])
    for k in range(2):
        assert out["prompt_ids"][k] == tokenizer.prompt_ids(dataset_rows(TASKS, CONFIG)[k]["prompt"][0]["content"])
        ids, mask, logprobs = (out[name][k] for name in ("completion_ids", "env_mask", "logprobs"))
        assert len(ids) == len(mask) == len(logprobs)
        assert [value == -0.5 for value in logprobs] == [bool(m) for m in mask]
        assert seen[1][k] == out["prompt_ids"][k] + ids[: mask.index(0) + mask[mask.index(0) :].index(1)]
    own = [i for i, m in zip(out["completion_ids"][0], out["env_mask"][0], strict=True) if m]
    assert tokenizer.decode(own) == answer(1.5) + answer(2.0)
    told = [i for i, m in zip(out["completion_ids"][1], out["env_mask"][1], strict=True) if not m]
    assert "wrong" in tokenizer.decode(told) or "incorrect" in tokenizer.decode(told)
    assert out[FIELD] == pytest.approx([0.5 + 0.75 + 0.5 + 0.5 + 1.0 + 0.5, 0.0 + 0.5 + 0.5 + 0.5])
    assert kernel_reward(["x", "y"], **{FIELD: out[FIELD]}) == out[FIELD]


@pytest.mark.parametrize(("score", "expected"), [("last", 1.5), ("best", 2.0), ("sum", 3.5)])
def test_one_number_of_a_trajectory(tokenizer, score, expected):
    out, _ = rollout(tokenizer, [[answer(2.0), answer(1.0)]], [0], score=score)
    assert out[FIELD] == pytest.approx([expected])


def test_a_trajectory_that_the_grader_failed_trains_nothing(tokenizer):
    answers = [[answer("INFRA")], [answer(2.0), answer(1.0)], [answer(1.0), answer(1.0)]]
    out, _ = rollout(tokenizer, answers, [0, 0, 1])
    assert out["env_mask"][0] == [0] * len(out["completion_ids"][0]) and 1 in out["env_mask"][1]
    assert out[FIELD][0] == out[FIELD][1]  # the mean of its group: the other's baseline is unmoved


def test_a_completion_never_exceeds_the_trainer_s_limit(tokenizer):
    length = len(tokenizer.encode(answer(1.5))) + 1
    out, _ = rollout(tokenizer, [[answer(1.5), answer(1.5)]], [0], limit=length + 3)
    assert len(out["completion_ids"][0]) == length and set(out["env_mask"][0]) == {1}
    out, _ = rollout(tokenizer, [[answer(1.5), answer(1.5)]], [0], limit=length - 2)
    assert len(out["completion_ids"][0]) == length - 2


def test_unknown_log_probabilities_are_left_to_the_trainer(tokenizer):
    out, _ = rollout(tokenizer, [[answer(1.5), answer(1.5)]], [0], logprobs=False)
    assert out["logprobs"] is None


@pytest.mark.slow
def test_two_steps_of_grpo_trainer(tmp_path, monkeypatch):
    trl = pytest.importorskip("trl")
    datasets = pytest.importorskip("datasets")
    from tiny import POCKET, tiny_policy

    monkeypatch.setenv("TRL_EXPERIMENTAL_SILENCE", "1")
    policy = tiny_policy()
    tokenizer: ChatTokenizer = policy.tokenizer
    config = trl.GRPOConfig(
        output_dir=str(tmp_path), max_steps=2, per_device_train_batch_size=4, num_generations=4, use_cpu=True,
        max_completion_length=24, report_to=[], logging_steps=1, save_strategy="no", bf16=False, learning_rate=1e-3,
    )  # fmt: skip
    assert POCKET.context >= 24
    short = EpisodeConfig(turns=2, prompts="compact")
    trainer = trl.GRPOTrainer(
        model=policy.model,
        args=config,
        processing_class=tokenizer.hf,
        train_dataset=datasets.Dataset.from_list(dataset_rows(TASKS, short)),
        reward_funcs=kernel_reward,
        rollout_func=make_rollout_func(TASKS, short, pool=TextPool()),
    )
    trainer.train()
    assert trainer.state.global_step == 2
    assert any("reward" in entry for entry in trainer.state.log_history)
