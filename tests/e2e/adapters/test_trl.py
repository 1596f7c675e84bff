"""The TRL adapter: bookkeeping of ids and masks, and steps of GRPOTrainer itself where TRL is installed."""

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from drkernel.adapters.trl import FIELD, dataset_rows, kernel_reward, make_environment, make_rollout_func
from drkernel.episode.episode import EpisodeConfig
from drkernel.rl.model.tokenizer import ChatTokenizer, train_tokenizer
from solve_fakes import TextPool, answer, make_tasks

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
    assert out[FIELD][0] is None and out[FIELD][1] == pytest.approx(3.5)


def test_a_completion_never_exceeds_the_trainer_s_limit(tokenizer):
    length = len(tokenizer.encode(answer(1.5))) + 1
    out, _ = rollout(tokenizer, [[answer(1.5), answer(1.5)]], [0], limit=length + 3)
    assert len(out["completion_ids"][0]) == length and set(out["env_mask"][0]) == {1}
    out, _ = rollout(tokenizer, [[answer(1.5), answer(1.5)]], [0], limit=length - 2)
    assert len(out["completion_ids"][0]) == length - 2


def test_unknown_log_probabilities_are_left_to_the_trainer(tokenizer):
    out, _ = rollout(tokenizer, [[answer(1.5), answer(1.5)]], [0], logprobs=False)
    assert out["logprobs"] is None


def test_a_system_message_is_part_of_the_prompt(tokenizer, tmp_path):
    (tmp_path / "system.txt").write_text("Be brief.")
    (tmp_path / "prompts.yaml").write_text("style: compact")
    terms = EpisodeConfig(turns=1, prompts=str(tmp_path))
    row = dataset_rows(TASKS, terms)[0]
    trainer = SimpleNamespace(processing_class=tokenizer.hf, args=SimpleNamespace(max_completion_length=400))
    drawn = [*tokenizer.encode(answer(1.5)), tokenizer.end_id]
    function = make_rollout_func(TASKS, terms, pool=TextPool(), generate=lambda trainer, ids: ([drawn], None))
    out = function([row["prompt"]], trainer)
    assert [message["role"] for message in row["prompt"]] == ["system", "user"]
    assert out["prompt_ids"][0] == tokenizer.opening_ids(row["prompt"])


@pytest.mark.parametrize(("score", "expected"), [("last", 1.5), ("best", 2.0), ("sum", 3.5)])
def test_an_environment_grades_the_calls_of_a_tool(score, expected):
    environment = make_environment(CONFIG, score=score, pool=TextPool())()
    row = dataset_rows(TASKS, CONFIG, tool=True)[0]
    assert row["prompt"][-1]["content"].endswith("It answers with the grade.")
    for _ in range(2):  # instances are used again
        environment.reset(**row)
        assert environment.submit("class ModelNew: SPEED = 2.0").startswith("correct 2.00x")
        environment.submit(answer(1.0))
        assert "over" in environment.submit(answer(3.0))
        assert environment.get_reward() == pytest.approx(expected)
    environment.reset(**row)
    assert environment.get_reward() == 0.0  # no call is an answer without code
    environment.reset(**row)
    environment.submit("class ModelNew: INFRA")
    assert environment.get_reward() is None


# ---- GRPOTrainer itself


@pytest.fixture
def grpo(tmp_path, monkeypatch):
    """``make(cls, template, **arguments)``: a trainer of four samples a task and a tiny policy."""
    trl, datasets = pytest.importorskip("trl"), pytest.importorskip("datasets")
    from drkernel.rl.model.policy import Policy, PolicyConfig, TokenizerConfig
    from tiny import POCKET, tiny_tokenizer

    monkeypatch.setenv("TRL_EXPERIMENTAL_SILENCE", "1")

    def make(cls=trl.GRPOTrainer, template=None, rows=None, length=24, **arguments):
        tokenizer: ChatTokenizer = tiny_tokenizer()
        if template is not None:
            tokenizer.hf.chat_template = (Path(trl.__file__).parent / "chat_templates" / template).read_text()
        terms = PolicyConfig(
            pocket=POCKET.model_copy(update={"context": 4096}), tokenizer=TokenizerConfig(vocab_size=320), device="cpu"
        )
        policy = Policy.from_scratch(terms, tokenizer, 0)
        config = trl.GRPOConfig(
            output_dir=str(tmp_path), max_steps=2, per_device_train_batch_size=4, num_generations=4, use_cpu=True,
            max_completion_length=length, report_to=[], logging_steps=1, save_strategy="no", bf16=False,
            learning_rate=1e-3,
        )  # fmt: skip
        rows = rows or dataset_rows(TASKS, CONFIG)
        data = datasets.Dataset.from_list(rows)
        return cls(model=policy.model, args=config, processing_class=tokenizer.hf, train_dataset=data, **arguments)

    return make


@pytest.mark.slow
def test_two_steps_of_grpo_trainer(grpo):
    rollout = make_rollout_func(TASKS, CONFIG, pool=TextPool())
    trainer = grpo(reward_funcs=kernel_reward, rollout_func=rollout)
    trainer.train()
    assert trainer.state.global_step == 2
    assert any("reward" in entry for entry in trainer.state.log_history)


@pytest.mark.slow
def test_two_steps_with_an_environment_whose_tool_is_called(grpo):
    rows = dataset_rows(TASKS, CONFIG, tool=True)
    factory = make_environment(CONFIG, pool=TextPool())
    trainer = grpo(template="qwen3.jinja", rows=rows, length=600, environment_factory=factory)
    tokenizer, speeds = ChatTokenizer(trainer.processing_class), iter([1.0, 2.0, 1.5, 3.0] * 2)

    def draw(input_ids, **_):
        call = '<tool_call>\n{"name": "submit", "arguments": {"module": "class ModelNew: SPEED = %s"}}\n</tool_call>'
        called = "<tool_call>\n{" in tokenizer.decode(input_ids[0])[-300:]
        made = [[*tokenizer.encode("Done." if called else call % next(speeds)), tokenizer.end_id] for _ in input_ids]
        return torch.cat([input_ids, torch.tensor(made)], dim=1)

    trainer.model.generate = draw
    trainer.train()
    first = trainer.state.log_history[0]
    assert first["reward"] == pytest.approx((1.5 + 2.0 + 1.75 + 2.5) / 4, abs=1e-3)
    assert first["tools/call_frequency"] == 1 and first["tools/failure_frequency"] == 0


@pytest.mark.slow
def test_every_turn_has_its_own_advantage(grpo, monkeypatch):
    pytest.importorskip("trl")
    from trl import GRPOTrainer

    from drkernel.adapters.trl_turns import TurnGRPOTrainer

    says = [[1.0, 2.5], [3.0, "WRONG"], ["INFRA"], [2.0, 2.5]]
    turns = [list(row) for row in says] + [list(row) for row in says]
    rows: list[list] = []

    def generate(trainer, ids):
        tokenizer = ChatTokenizer(trainer.processing_class)
        if not rows or all(not row for row in rows[-4:]):
            rows.extend(turns[len(rows) : len(rows) + 4])
        texts = [answer(row.pop(0)) for row in rows[-4:] if row]
        return [[*tokenizer.encode(text), tokenizer.end_id] for text in texts], None

    seen = []
    real = GRPOTrainer.compute_loss

    def watch(self, model, inputs, *rest):
        seen.append({name: value.clone() for name, value in inputs.items() if torch.is_tensor(value)})
        return real(self, model, inputs, *rest)

    monkeypatch.setattr(GRPOTrainer, "compute_loss", watch)
    options = {"tasks": TASKS, "terms": CONFIG, "pool": TextPool(), "generate": generate, "length": 900}
    trainer = grpo(TurnGRPOTrainer, **options)
    tokenizer = ChatTokenizer(trainer.processing_class)
    trainer.train()
    assert trainer.state.global_step == 2 and len(seen) == 2
    rewards = [[0.0 if speed == "WRONG" else 1.0 + speed / 2 for speed in says[row]] for row in (0, 1, 3)]
    returns = [[sum(row[turn:]) for turn in range(2)] for row in rewards]
    wanted = {
        row: [own[t] - sum(other[t] for other in returns if other is not own) / 2 for t in range(2)]
        for row, own in zip((0, 1, 3), returns, strict=True)
    }
    for batch in seen:
        assert batch["advantages"].shape == batch["completion_ids"].shape
        found = []
        for ids, mask, values in zip(batch["completion_ids"], batch["tool_mask"], batch["advantages"], strict=True):
            where = [t.tolist() for t in values.nonzero(as_tuple=True)]
            text = tokenizer.decode(ids[mask.bool()].tolist())
            row = next((k for k, said in enumerate(says) if text == "".join(map(answer, said))), 2)
            runs = [values[k].item() for k in where[0] if k == 0 or values[k] != values[k - 1]]
            assert all(mask[k] for k in where[0])
            found.append(row)
            assert runs == pytest.approx(wanted.get(row, []), abs=1e-5)
        assert sorted(found) == [0, 1, 2, 3]
