"""Engines by name: trainers to which ``drkernel train RECIPE --engine NAME`` hands a recipe's reinforcement learning.

A plug-in of the recipe may register its own::

    from drkernel.engines import engines

    @engines.register("mine")
    def mine(recipe, pool, dry_run):
        return 0
"""

from collections.abc import Callable

from drkernel.registry import Registry
from drkernel.rl.run.recipe import Recipe

engines: Registry[Callable[[Recipe, str | None, bool], int]] = Registry("engine")
"""``f(recipe, pool, dry_run) -> int``, the exit code. ``pool`` is the address of a grading service, None for this
machine; with ``dry_run`` the engine prints what a start would do and need, and changes nothing."""


@engines.register("verl")
def _verl(recipe: Recipe, pool: str | None, dry_run: bool) -> int:
    from drkernel.engines.verl.start import configuration, missing, run

    if not dry_run:
        return run(recipe, pool)
    print("# what verl is given; keys that are not here keep verl's own defaults (its ppo_trainer.yaml)")
    print(configuration(recipe, pool))
    print("#\n# missing on this machine")
    print("\n".join(f"#   {item}" for item in missing(recipe, pool) or ["nothing"]))
    return 0
