"""The command line of training, with a pool whose verdicts are a function of the text."""

import json

import pytest

from drkernel.cli import application, main
from drkernel.config import ConfigError, differences, dump_config, load_config
from drkernel.rl.run.estimate import estimate, find_shape
from drkernel.rl.run.recipe import Recipe, check_recipe
from fakes import FakePool, tiny_recipe
from places import RECIPES


def call(*args):
    """Run ``drkernel train``; its exit code."""
    with pytest.raises(SystemExit) as ended:
        main(["train", *map(str, args)])
    return ended.value.code or 0


@pytest.fixture
def recipe_file(tmp_path, monkeypatch):
    monkeypatch.setattr("drkernel.rl.run.recipe.make_pool", lambda recipe: FakePool())
    recipe = tiny_recipe(
        tmp_path,
        sft={"epochs": 3, "lr": 0.01, "batch_tokens": 300},
        rl={"steps": 2, "learner": {"lr": 0.003}},
        evaluation={"final_tasks": 4, "final_samples": 1, "every": 1, "tasks": 2},
    )
    path = tmp_path / "recipe.yaml"
    path.write_text(dump_config(recipe))
    return path


def test_a_run_ends_with_a_table_and_is_done_the_second_time(recipe_file, tmp_path, capsys):
    assert call(recipe_file, "name=short", "rl.steps=1") == 0
    out = capsys.readouterr().out
    assert "fast_1.2" in out and "before RL" in out and "next:" in out
    assert "held-out (before)" in out and "rl 1 reward" in out
    summary = json.loads((tmp_path / "runs" / "short" / "summary.json").read_text())
    assert summary["steps"]["rl"] == 1
    assert call(recipe_file, "name=short", "rl.steps=1") == 0
    assert "is done" in capsys.readouterr().out
    assert call(recipe_file, "name=short", "--fresh") == 2
    assert "exists" in capsys.readouterr().err


def test_resume_takes_the_directory_alone(recipe_file, tmp_path, capsys, monkeypatch):
    from drkernel.rl.run.reinforce import RlStage

    step = RlStage.step

    async def crash(self, learner, tasks):
        if self.sitting.state.step == 1:
            raise OSError("power cut")
        await step(self, learner, tasks)

    with monkeypatch.context() as patch:
        patch.setattr(RlStage, "step", crash)
        with pytest.raises(OSError, match="power cut"):
            application("train")(args=[str(recipe_file)], standalone_mode=False)
    assert call("--resume", tmp_path / "runs" / "tiny") == 0
    rows = [json.loads(line) for line in (tmp_path / "runs" / "tiny" / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows if row["stage"] == "rl"] == [1, 2]
    capsys.readouterr()


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ([], "give a recipe"),
        (["missing.yaml"], "no such recipe: missing.yaml"),
        (["{recipe}", "rl.stepz=3"], "rl.stepz: unknown key"),
        (["{recipe}", "rl.learner.advantage.name=best"], "unknown advantage 'best'"),
        (["{recipe}", "rl.learner.loss.options={clip: 1}"], "clipped has no option 'clip'"),
        (["--resume", "."], "is not a run directory"),
        (["{recipe}", "policy.device=cuda", "rl=null"], "lacks a CUDA device for the policy"),
    ],
)
def test_mistakes_are_named(recipe_file, capsys, monkeypatch, args, message):
    assert call(*[arg.replace("{recipe}", str(recipe_file)) for arg in args]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("path", sorted(RECIPES.glob("*.yaml")), ids=lambda path: path.stem)
def test_every_recipe_loads_and_can_be_estimated(path, capsys):
    recipe = load_config(Recipe, path)
    check_recipe(recipe)
    assert call(path, "--dry-run") == 0
    out = capsys.readouterr().out
    assert "memory" in out and "time" in out and "missing on this machine" in out


def test_sizes_are_those_of_the_published_models():
    sizes = {
        name: find_shape(load_config(Recipe, RECIPES / f"{name}.yaml")).parameters for name in ("qwen3-8b", "qwen3-14b")
    }
    assert sizes["qwen3-8b"] == pytest.approx(8.19e9, rel=0.01)
    assert sizes["qwen3-14b"] == pytest.approx(14.77e9, rel=0.01)


def test_the_estimate_counts_the_weights_that_are_made(tmp_path):
    from tiny import POCKET, tiny_policy

    recipe = tiny_recipe(tmp_path, policy={"pocket": POCKET.model_dump()})
    policy = tiny_policy()
    changed = recipe.policy.model_copy(
        update={"tokenizer": recipe.policy.tokenizer.model_copy(update={"vocab_size": len(policy.tokenizer)})}
    )
    recipe = recipe.model_copy(update={"policy": changed})
    assert find_shape(recipe).parameters == pytest.approx(policy.size, rel=0.02)
    assert estimate(recipe).memory["optimiser (AdamW)"] == pytest.approx(8 * policy.size, rel=0.02)


@pytest.mark.parametrize("size", ["8b", "14b"])
def test_the_papers_values_are_in_the_recipes_and_those_of_its_scripts_in_others(size):
    recipe = load_config(Recipe, RECIPES / f"qwen3-{size}.yaml")
    learner, rollout = recipe.rl.learner, recipe.rollout
    assert recipe.policy.model == f"Qwen/Qwen3-{size.upper()}-Base"
    assert (rollout.tasks, rollout.samples, recipe.episode.turns, recipe.rl.steps) == (16, 16, 3, 300)
    assert (rollout.sampling.temperature, rollout.sampling.max_tokens, rollout.context) == (1.0, 8192, 32768)
    assert (recipe.sft.lr, recipe.sft.batch_rows, recipe.sft.epochs) == (1e-6, 256, 4)
    assert (recipe.episode.settings.deadline_s, recipe.episode.prompts) == (300, "kernelgym")
    assert (learner.lr, learner.clip, learner.kl_coefficient, learner.mask_void_turns) == (1e-6, 1.0, 0.0, True)
    assert learner.loss.options == {"clip_low": 0.2, "clip_high": 0.28}
    assert (learner.advantage.name, learner.mismatch[0].options) == ("trloo", {"mask": "turn_geometric"})
    assert learner.rejection[0].options == {"threshold": 0.3, "width": 0.1}
    assert [method.name for method in learner.rejection] == ["prs", "uninformative"] and rollout.refill == 5
    reward = recipe.episode.reward
    assert (reward.correct_weight, reward.speedup_weight, reward.coverage_weight) == (1.0, 1.0, 1.0)
    assert (reward.speedup_min, reward.speedup_max, reward.coverage_from) == (0.0, 3.0, "candidate")

    released = load_config(Recipe, RECIPES / f"qwen3-{size}-released.yaml")
    assert (released.policy, released.verl) == (recipe.policy, recipe.verl)
    assert {key for key, *_ in differences(recipe, released)} == {
        "name", "episode.reward.correct_weight", "episode.reward.speedup_weight",
        "episode.reward.coverage_weight", "sft.lr", "sft.batch_rows", "rollout.context", "rl.learner.mismatch",
    }  # fmt: skip


def test_a_recipe_extends_another(tmp_path, capsys):
    (tmp_path / "mine.yaml").write_text("extends: more/base.yaml\nseed: 3\nrl: {learner: {lr: 2.0e-6}}\n")
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "base.yaml").write_text("name: base\nrl: {steps: 7}\n")
    found = load_config(Recipe, tmp_path / "mine.yaml", ["seed=4"])
    assert (found.name, found.seed, found.rl.steps, found.rl.learner.lr) == ("base", 4, 7, 2e-6)
    (tmp_path / "more" / "base.yaml").write_text("extends: ../mine.yaml\n")
    with pytest.raises(ConfigError, match="extends itself"):
        load_config(Recipe, tmp_path / "mine.yaml")
    (tmp_path / "more" / "base.yaml").unlink()
    with pytest.raises(ConfigError, match=r"cannot read config .*base\.yaml"):
        load_config(Recipe, tmp_path / "mine.yaml")
    with pytest.raises(SystemExit):
        main(["recipes", "qwen3-14b-released"])
    (tmp_path / "copy.yaml").write_text(capsys.readouterr().out)
    assert load_config(Recipe, tmp_path / "copy.yaml") == load_config(Recipe, RECIPES / "qwen3-14b-released.yaml")


def test_a_finished_run_is_not_passed_off_as_another(recipe_file, tmp_path, capsys):
    assert call(recipe_file, "name=first", "rl.steps=1") == 0
    capsys.readouterr()
    assert call(recipe_file, "name=first", "rl.steps=2", "seed=3") == 2
    out, err = capsys.readouterr()
    assert "rl.steps is 1 there, 2 here" in err and "seed is 0 there, 3 here" in err and "before RL" not in out
    assert call(recipe_file, "name=first", "rl.steps=1", "checkpoint.keep=5") == 0  # does not change the result
    assert "before RL" in capsys.readouterr().out
