"""Start verl on a recipe: write its configuration and data, and run its own main program on them."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from drkernel.config import ConfigError
from drkernel.engines.verl.translate import directory, environment, start_model, translate
from drkernel.episode.episode import EpisodeConfig
from drkernel.gym.sandbox import linux
from drkernel.rl.run.estimate import lacking_files
from drkernel.rl.run.recipe import Recipe
from drkernel.task import Task

AGENT = [{"name": "drkernel", "_target_": "drkernel.engines.verl.agent.KernelAgentLoop"}]
INSTALL = "install drkernel[verl] in an environment of its own, see docs/engines.md"


def missing(recipe: Recipe, pool: str | None) -> list[str]:
    """List what a start here and now would lack."""
    found = []
    if importlib.util.find_spec("verl") is None:
        found.append(f"verl: {INSTALL}")
    if not _judged(recipe, pool):
        found.append(f"a judge that measures on {recipe.episode.settings.device}: drkernel serve, and --pool URL")
    if recipe.sft is not None and not Path(start_model(recipe)).exists():
        found.append(f"{start_model(recipe)}: the stages before RL make it, drkernel train RECIPE rl=null")
        return found + lacking_files(recipe)
    return found + lacking_files(recipe.model_copy(update={"coldstart_file": None}))


def _judged(recipe: Recipe, pool: str | None) -> bool:
    """Whether somebody grades: a service, or local pools where nothing is measured on the GPUs that train."""
    return pool is not None or recipe.episode.settings.place.simulated


def configuration(recipe: Recipe, pool: str | None = None) -> str:
    """Return verl's configuration, as YAML over its defaults."""
    own = {"defaults": ["ppo_trainer", "_self_"], **translate(recipe, pool)}
    return yaml.safe_dump(own, sort_keys=False, allow_unicode=True)


def rows(tasks: Sequence[Task], terms: EpisodeConfig, split: str) -> list[dict[str, Any]]:
    """Return verl's data set: one row a task, with the prompt for its length and the task for the agent loop."""
    prompts = terms.texts()
    return [
        {
            "data_source": "drkernel",
            "prompt": [m.model_dump() for m in prompts.opening(task, terms.settings.for_task(task))],
            "agent_name": "drkernel",
            "reward_model": {"style": "rule", "ground_truth": ""},
            "extra_info": {"index": index, "task_id": task.id, "task": task.model_dump_json(), "split": split},
        }
        for index, task in enumerate(tasks)
    ]


def prepare(recipe: Recipe, pool: str | None = None) -> Path:
    """Write configuration and data into the run's directory and return their directory.

    Raises :class:`ConfigError` when the weights to start from do not exist.
    """
    place = directory(recipe) / "verl"
    text = configuration(recipe, pool)
    before = Path(start_model(recipe))
    if not _judged(recipe, pool):
        raise ConfigError(
            f"episode.settings.device {recipe.episode.settings.device}: the GPUs here train; start `drkernel serve` on "
            "others and give --pool URL"
        )
    if recipe.sft is not None and not before.exists():
        raise ConfigError(
            f"{before} does not exist: run the stages before RL first, `drkernel train RECIPE rl=null`, then this"
        )
    place.mkdir(parents=True, exist_ok=True)
    (place / "run.yaml").write_text(text, encoding="utf-8")
    (place / "agent.yaml").write_text(yaml.safe_dump(AGENT), encoding="utf-8")
    heldout = recipe.heldout()[: recipe.evaluation.tasks]
    for name, tasks in (("train", recipe.train_tasks.tasks("train")), ("heldout", heldout)):
        lines = (json.dumps(row, ensure_ascii=False) + "\n" for row in rows(tasks, recipe.episode, name))
        (place / f"{name}.jsonl").write_text("".join(lines), encoding="utf-8")
    return place


def run(recipe: Recipe, pool: str | None = None) -> int:
    """Run verl to the end of the recipe's RL and return its exit code; metrics go to ``verl/metrics.jsonl`` of the
    run. A run that was stopped (130) continues from its last checkpoint when it is started again."""
    if importlib.util.find_spec("verl") is None:
        raise ConfigError(f"verl is not installed in this environment: {INSTALL}")
    place = prepare(recipe, pool).absolute()
    _put_aside(place / "metrics.jsonl")
    known = {**os.environ, **environment(recipe), "VERL_FILE_LOGGER_PATH": str(place / "metrics.jsonl")}
    command = [sys.executable, "-m", "verl.trainer.main_ppo", "--config-dir", str(place), "--config-name", "run"]
    command += ["hydra.run.dir=" + str(place / "hydra"), "hydra.output_subdir=null"]
    code, stopped = attend(command, known)
    if code or stopped:
        say(f"{'stopped' if stopped else f'verl ended with code {code}'}; {_continuation(recipe)}")
    return 130 if stopped else code


def _continuation(recipe: Recipe) -> str:
    """Say where the same command would go on."""
    latest = directory(recipe) / "verl" / "checkpoints" / "latest_checkpointed_iteration.txt"
    if latest.exists():
        return f"the same command continues after step {latest.read_text().strip()}"
    return "no checkpoint was saved yet (verl.save_every), the same command begins again"


def _put_aside(metrics: Path) -> None:
    """Keep the log of an earlier start, which verl would overwrite, under the next free number."""
    if metrics.exists() and metrics.stat().st_size:
        taken = len(list(metrics.parent.glob("metrics.*.jsonl")))
        metrics.rename(metrics.with_name(f"metrics.{taken + 1}.jsonl"))


def attend(command: Sequence[str], environ: dict[str, str]) -> tuple[int, bool]:
    """Run a program to its end; return its exit code and whether it was asked to stop.

    It has a session of its own, so that Ctrl-C reaches it once, from here, and its processes can end in their order.
    When this process is killed it gets SIGTERM.
    """
    process = subprocess.Popen(linux.bound(command), env=environ, start_new_session=True)
    asked = 0

    def stop(number: int, _: Any) -> None:
        nonlocal asked
        asked += 1
        if asked == 1:
            say("stopping (again to kill it)")
        # a second time ends even a program that does not listen
        process.send_signal(number if asked == 1 else signal.SIGKILL)

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        return process.wait(), asked > 0
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def say(text: str) -> None:
    """Tell the user something beside the program's own output."""
    print(f"drkernel train: {text}", file=sys.stderr, flush=True)
