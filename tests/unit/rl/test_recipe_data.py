"""The families of generated tasks hold as many as the quickstart asks for."""

from drkernel.config import load_config
from drkernel.rl.data.problem import generate_tasks
from drkernel.rl.run.recipe import Recipe
from places import RECIPES

QUICKSTART = RECIPES / "quickstart.yaml"


def test_the_quickstart_can_draw_what_it_asks_for():
    recipe = load_config(Recipe, QUICKSTART)
    assert recipe.copying is not None and recipe.coldstart is not None
    wanted = {
        ("train", recipe.copying.task_seed): recipe.copying.tasks,
        ("train", recipe.copying.task_seed + 1): recipe.copying.kernels,
        ("train", recipe.coldstart.seed): recipe.coldstart.tasks,
        ("train", recipe.train_tasks.seed): recipe.train_tasks.count,
        ("heldout", recipe.heldout_tasks.seed): recipe.heldout_tasks.count,
    }
    for (split, seed), count in wanted.items():
        assert len(generate_tasks(split, count, seed, checked=False)) == count
