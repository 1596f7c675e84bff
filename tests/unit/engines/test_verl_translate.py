"""A recipe in verl's words: nothing is dropped in silence, and what cannot be said is an error that names the key."""

import json

import pytest
import yaml

from commands import invoke
from drkernel.config import ConfigError, field_keys, load_config
from drkernel.engines.verl.start import prepare
from drkernel.engines.verl.translate import handled, translate
from drkernel.rl.run.recipe import Recipe
from places import RECIPES

SMALL = {
    "policy": {"model": "somewhere", "device": "cpu"},
    "rollout": {"tasks": 4, "samples": 2, "context": 480, "sampling": {"max_tokens": 160, "stop_at_fence": False}},
    "rl": {"steps": 3},
}


def small(**changes) -> Recipe:
    return load_config(Recipe, base=SMALL, overrides=[f"{key}={json.dumps(value)}" for key, value in changes.items()])


def changed(key, value) -> Recipe:
    return load_config(Recipe, base=SMALL, overrides=[f"{key}={json.dumps(value)}"])


def test_every_key_of_a_recipe_is_translated_carried_or_explained():
    assert [key for key, _ in field_keys(Recipe) if not handled(key)] == []


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("verl.sampler_gpus", 2),
        ("rollout.sampling.stop_at_fence", True),
        ("rl.learner.loss", {"name": "of_a_plugin"}),
        ("rl.learner.schedule", {"name": "cosine", "options": {"total": 7}}),
        ("rl.learner.updates", 3),
        ("episode.context", {"name": "best"}),
        ("budget_minutes", 5),
        ("policy.lora", {"dropout": 0.1}),
        ("policy.model", "qwen3-pocket"),
        ("rollout.sampling.max_tokens", 480),
        ("verl.gpu", 3),
    ],
)
def test_what_verl_cannot_express_is_an_error_that_names_the_key(key, value):
    with pytest.raises(ConfigError, match=key.replace(".", r"\.")):
        translate(changed(key, value))


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"policy.device": "cuda"}, "rollout.staleness 1"),
        ({"policy.device": "cuda", "verl.sampler_gpus": 9}, "verl.sampler_gpus 9"),
        ({"rl.learner.updates": 2}, "rl.learner.updates 2"),
        ({"policy.lora": {}}, "policy.lora"),
    ],
)
def test_where_no_batch_can_be_drawn_ahead_the_key_is_named(changes, key):
    with pytest.raises(ConfigError, match=key.replace(".", r"\.")):
        translate(small(**{"rollout.staleness": 1, **changes}))


def test_the_words_of_verl():
    recipe = changed("rl.learner.loss", {"name": "clipped", "options": {"clip_high": 0.3, "dual_clip": None}})
    found = translate(recipe, "http://judge:8765")
    actor, rollout = found["actor_rollout_ref"]["actor"], found["actor_rollout_ref"]["rollout"]
    assert (actor["clip_ratio_low"], actor["clip_ratio_high"], actor["clip_ratio_c"]) == (0.2, 0.3, 1e9)
    assert actor["ppo_mini_batch_size"] == 4 and rollout["n"] == 2 and actor["ppo_max_token_len_per_gpu"] == 4096
    assert found["trainer"]["v1"]["trainer_mode"] == "drkernel" and rollout["name"] == "drkernel"
    assert found["drkernel"]["pool"] == "http://judge:8765" and found["drkernel"]["max_tokens"] == 160
    assert translate(changed("rl.learner.updates", 2))["actor_rollout_ref"]["actor"]["ppo_mini_batch_size"] == 2
    actor = translate(small(**{"rl.learner.kl_coefficient": 0.02, "rl.learner.kl": "k2"}))["actor_rollout_ref"]["actor"]
    assert (actor["use_kl_loss"], actor["kl_loss_coef"], actor["kl_loss_type"]) == (True, 0.02, "k2")
    ahead = translate(small(**{"rollout.staleness": 1, "policy.device": "cuda", "verl.sampler_gpus": 16}))
    assert ahead["trainer"]["v1"]["trainer_mode"] == "drkernel_ahead"
    assert (ahead["actor_rollout_ref"]["rollout"]["nnodes"], ahead["actor_rollout_ref"]["hybrid_engine"]) == (2, False)
    extra = changed("verl.extra", {"actor_rollout_ref.rollout.max_num_seqs": 64})
    assert translate(extra)["actor_rollout_ref"]["rollout"]["max_num_seqs"] == 64
    plugged = translate(changed("plugins", ["json"]))["ray_kwargs"]["ray_init"]["runtime_env"]["env_vars"]
    assert plugged["VERL_USE_EXTERNAL_MODULES"] == "json,drkernel.engines.verl.plugin"


def test_the_data_of_a_run_are_tasks_with_their_prompts(tmp_path):
    recipe = load_config(
        Recipe,
        base=SMALL,
        overrides=[f"runs={tmp_path}", "train_tasks.count=3", "heldout_tasks.count=5", "evaluation.tasks=2"],
    )
    place = prepare(recipe)
    rows = [json.loads(line) for line in (place / "train.jsonl").read_text().splitlines()]
    assert len(rows) == 3 and len((place / "heldout.jsonl").read_text().splitlines()) == 2
    assert "class Model" in rows[0]["prompt"][-1]["content"] and rows[0]["agent_name"] == "drkernel"
    assert json.loads(rows[0]["extra_info"]["task"])["id"] == rows[0]["extra_info"]["task_id"]
    written = yaml.safe_load((place / "run.yaml").read_text())
    assert written["defaults"] == ["ppo_trainer", "_self_"] and written["data"]["train_files"].endswith("train.jsonl")


def test_stages_before_rl_must_have_been_run(tmp_path):
    overrides = [f"runs={tmp_path}", "coldstart_file=x.jsonl", "sft={}"]
    with pytest.raises(ConfigError, match="checkpoints/sft does not exist"):
        prepare(load_config(Recipe, base=SMALL, overrides=overrides))


def test_a_measuring_judge_needs_gpus_of_its_own(tmp_path):
    with pytest.raises(ConfigError, match=r"episode\.settings\.device cuda:0.*--pool"):
        prepare(load_config(Recipe, base=SMALL, overrides=[f"runs={tmp_path}", "episode.settings.device=cuda:0"]))


@pytest.mark.parametrize("name", ["qwen3-8b", "qwen3-14b", "qwen3-14b-released"])
def test_the_dry_run_prints_the_configuration_and_what_is_missing(name):
    asked = [str(RECIPES / f"{name}.yaml"), "--engine", "verl", "--dry-run", "--pool", "http://judge:8765"]
    result = invoke("train", *asked)
    assert result.exit_code == 0, result.output
    written = yaml.safe_load(result.stdout)  # the notes are comments
    assert written["actor_rollout_ref"]["rollout"]["n"] == 16 and written["trainer"]["v1"]["trainer_mode"] == "drkernel"
    missing = result.stdout.split("# missing on this machine")[1]
    assert "checkpoints/sft" in missing and "drkernel-coldstart-8k.parquet" in missing
    assert "drkernel-rl-data.parquet" in missing and "a judge" not in missing
    assert "a judge that measures on cuda:0" in invoke("train", *asked[:-2]).stdout


def test_an_unknown_key_ends_the_command_with_its_name():
    asked = [str(RECIPES / "qwen3-14b.yaml"), "verl.gpuz=1", "--engine", "verl", "--dry-run"]
    result = invoke("train", *asked)
    assert result.exit_code == 2 and "verl.gpuz" in result.output
