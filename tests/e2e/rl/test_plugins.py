"""Methods of a user's own, named in a recipe: the page's example runs, and what is wrong with a plug-in is said."""

import asyncio
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from drkernel.config import ConfigError
from drkernel.gym import reward as gym_reward
from drkernel.registry import Registry, load_plugins
from drkernel.rl.run import registry
from drkernel.rl.run.recipe import check_recipe
from drkernel.rl.run.trainer import Run
from fakes import FakePool, tiny_recipe
from farm import PYTHON
from places import DOCS

PAGE = DOCS / "plugins.md"
KINDS = (registry.advantage, registry.rejection, gym_reward.rewards)


@pytest.fixture
def workplace(tmp_path, monkeypatch):
    """A directory to run in whose modules are forgotten afterwards, and registries that forget what is added."""
    monkeypatch.chdir(tmp_path)
    for kind in KINDS:
        monkeypatch.setattr(kind, "_entries", dict(kind._entries))
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", None)).startswith(str(tmp_path)):
            del sys.modules[name]


def test_the_pages_example_trains(workplace):
    (workplace / "my_methods.py").write_text(re.search(r"```python\n(.*?)```", PAGE.read_text(), re.S)[1])
    reward = {"name": "speed_only", "options": {"cap": 1.5}}
    learner = {
        "lr": 0.003,
        "advantage": {"name": "centred", "options": {"scale": 0.5}},
        "rejection": {"name": "wrong_only"},
    }
    recipe = tiny_recipe(workplace, plugins=["my_methods"], rl={"steps": 1, "learner": learner})
    recipe = recipe.model_copy(
        update={"episode": recipe.episode.model_copy(update={"reward": gym_reward.RewardConfig(**reward)})}
    )
    asyncio.run(Run(recipe, FakePool()).run())
    lines = (Path(recipe.runs) / recipe.name / "metrics.jsonl").read_text().splitlines()
    row = [json.loads(line) for line in lines][-1]
    # fused answers are 2x fast and earn the cap, lazy ones 1.05, wrong ones nothing; right ones are rejected
    correct = row["status"].get("correct", 0)
    assert row["rejected_turns"] == pytest.approx(correct / sum(row["status"].values()))
    assert str(workplace) not in sys.path


def test_what_is_wrong_with_a_plugin_is_said(workplace):
    with pytest.raises(ConfigError, match=r"cannot import 'no_such_module'.*where the command is run"):
        load_plugins(["no_such_module"])
    (workplace / "broken_plugin.py").write_text("1 / 0")
    with pytest.raises(ConfigError, match="'broken_plugin': ZeroDivisionError"):
        load_plugins(["broken_plugin"])
    recipe = tiny_recipe(workplace)
    reward = gym_reward.RewardConfig(name="mine")
    with pytest.raises(ConfigError, match=r"episode\.reward: unknown reward 'mine'; known: .*weighted"):
        check_recipe(recipe.model_copy(update={"episode": recipe.episode.model_copy(update={"reward": reward})}))


def test_options_are_those_that_the_function_takes():
    kind: Registry = Registry("thing")

    @kind.register("one")
    def one(batch, *, seed, scale=1.0):
        return batch, seed, scale

    kind.check("key", "one", {"scale": 2.0}, given=("seed",))
    with pytest.raises(ConfigError, match="key: one has no option 'batch'; it has: scale"):
        kind.check("key", "one", {"batch": 1}, given=("seed",))
    maker: Registry = Registry("maker", makers=True)
    maker.register("m")(lambda total, warmup=0: None)
    maker.check("key", "m", {"total": 3})
    with pytest.raises(ConfigError, match="key: unknown thing 'two'; known: one"):
        kind.check("key", "two", {})


def test_the_command_finds_a_module_beside_it(tmp_path):
    (tmp_path / "loud_plugin.py").write_text("print('loud plugin imported')")
    (tmp_path / "r.yaml").write_text("plugins: [loud_plugin]\nrl: {learner: {advantage: nothing}}\n")
    done = subprocess.run(
        [PYTHON, "-m", "drkernel", "train", "r.yaml", "--dry-run"], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 2 and "loud plugin imported" in done.stdout
    assert "cold-start data" in done.stderr or "unknown advantage 'nothing'" in done.stderr
