"""The recipe: one typed file that defines a run, from cold start to evaluation."""

import inspect
import random
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, field_validator

from drkernel.config import Config, ConfigError, differences, load_config
from drkernel.episode.episode import EpisodeConfig
from drkernel.gym.request import Pool
from drkernel.registry import Method, load_plugins
from drkernel.rl.data.coldstart import ColdstartConfig, filters
from drkernel.rl.model.answerer import ServerConfig
from drkernel.rl.model.policy import PolicyConfig
from drkernel.rl.model.sampler import SamplingConfig
from drkernel.rl.run import registry
from drkernel.rl.run.learner import LearnerConfig, check_methods
from drkernel.rl.run.sft import CopyingConfig, SftConfig
from drkernel.task import Task

Extra = Literal["tensorboard", "trackio", "wandb"]
"""places that metrics are copied to"""
FREE = ("runs", "name", "sinks", "report", "threads", "checkpoint", "budget_minutes", "verl")
"""Sections of a recipe that may differ when a run is taken up again: they do not change its result."""


class TaskSource(Config):
    """Where tasks come from: generated families, or files and suites."""

    generated: Literal["train", "heldout"] | None = Field(
        None, description="families of generated tasks; with neither this nor `load`, the split's own families"
    )
    load: str | None = Field(None, description="'builtin', 'kernelbench:DIR/level2', 'parquet:FILE', 'jsonl:FILE'")
    count: int = Field(1000, ge=1, description="tasks at most")
    seed: int = Field(0, description="of the generator")

    def tasks(self, split: Literal["train", "heldout"]) -> list[Task]:
        """The tasks, in a fixed order."""
        if self.load is not None:
            from drkernel.tasks.loaders import load_tasks

            return load_tasks(self.load)[: self.count]
        from drkernel.rl.data.problem import generate_tasks

        return generate_tasks(self.generated or split, self.count, self.seed)


class RolloutConfig(Config):
    """How much is sampled in each step of RL, and how."""

    tasks: int = Field(16, ge=1, description="prompts a step")
    samples: int = Field(16, ge=1, description="trajectories a prompt")
    refill: int = Field(
        0,
        ge=0,
        description="rounds of further prompts at most, in place of those that the rejection 'uninformative' drops "
        "(released recipe: 5)",
    )
    sampling: SamplingConfig = SamplingConfig()
    context: int = Field(1024, ge=32, description="longest conversation in tokens")
    waves: int = Field(2, ge=1, description="parts played in turn: one is graded while the next is sampled")
    threads: int | None = Field(
        None, ge=1, description="threads of sampling's arithmetic; fewer leave cores to a judge on the same machine"
    )
    dtype: Literal["same", "bf16"] = Field(
        "same", description="the sampler's weights; 'bf16' makes a real mismatch with the trainer"
    )
    backend: Literal["local", "vllm"] = Field(
        "local", description="who samples in training; vllm: a server started here"
    )
    server: ServerConfig = ServerConfig()
    staleness: Literal[0, 1] = Field(
        0,
        description="1: a batch is sampled and graded while the learner takes the step before it, by the weights from "
        "before that step; the mismatch criteria (mrs) see the difference",
    )


class RlConfig(Config):
    """The stage of reinforcement learning."""

    steps: int = Field(100, ge=0)
    learner: LearnerConfig = LearnerConfig()
    log_samples: int = Field(4, ge=0, description="trajectories a step written to samples.jsonl")


class EvaluationConfig(Config):
    """How a policy is evaluated during and after training."""

    every: int = Field(10, ge=1, description="RL steps between evaluations on held-out tasks")
    tasks: int = Field(40, ge=1, description="held-out tasks of an evaluation during training")
    samples: int = Field(1, ge=1, description="trajectories a task")
    final_tasks: int = Field(100, ge=0, description="held-out tasks before and after RL; 0: no evaluation then")
    final_samples: int = Field(2, ge=1, description="trajectories a task before and after RL")
    temperature: float = Field(1.0, ge=0)
    top_p: float | None = Field(None, gt=0, le=1, description="None takes that of rollout.sampling")
    seed: int = Field(
        7, description="seed of the draws, equal for every evaluation of a run so that they are comparable"
    )


class PoolConfig(Config):
    """The pool that grades."""

    kind: Literal["local"] = "local"
    slots: int | None = Field(None, ge=1, description="evaluations at once; None: one a core")
    cache: int = Field(20_000, ge=0, description="verdicts kept for equal requests (used only with a judge seed)")


class CheckpointConfig(Config):
    """When checkpoints are written and how many are kept."""

    seconds: float = Field(60.0, ge=0, description="seconds between checkpoints; 0 writes one after every step")
    keep: int = Field(2, ge=1, description="resumable checkpoints kept")


class Recipe(Config):
    """A complete run. Stages that are None are skipped."""

    name: str = Field("run", min_length=1, description="name of the run's directory")
    runs: str = Field("runs", description="where run directories are made")
    seed: int = Field(0, ge=0, description="decides every draw of the run")
    policy: PolicyConfig = PolicyConfig()
    train_tasks: TaskSource = TaskSource()
    heldout_tasks: TaskSource = TaskSource(count=200, seed=1)
    episode: EpisodeConfig = EpisodeConfig()
    rollout: RolloutConfig = RolloutConfig()
    pool: PoolConfig = PoolConfig()
    coldstart: ColdstartConfig | None = Field(None, description="stage 1: make verified trajectories")
    coldstart_file: str | None = Field(None, description="verified trajectories made before, instead of stage 1")
    select: tuple[Method, ...] = Field(
        (), description="filters of the data of stage 2, one after the other: successful, or a plug-in's"
    )
    copying: CopyingConfig | None = Field(None, description="practice in copying modules, before stage 2")
    sft: SftConfig | None = Field(None, description="stage 2: supervised fine-tuning on the cold-start data")
    rl: RlConfig | None = Field(None, description="stage 3: reinforcement learning")
    evaluation: EvaluationConfig = EvaluationConfig()
    checkpoint: CheckpointConfig = CheckpointConfig()
    judge_seed: int | None = Field(
        None, description="None draws new secret seeds; a number makes verdicts, and so the run, repeatable"
    )
    budget_minutes: float | None = Field(
        None, gt=0, description="stop RL early so that the run takes about this long; stages before RL are not cut"
    )
    threads: int | None = Field(None, ge=1, description="threads of the trainer's arithmetic; None: one a core")
    report: bool = Field(True, description="write report.html at the end")
    plugins: tuple[str, ...] = Field(
        (), description="modules of your own to import first: what they register can be named in this recipe"
    )
    sinks: tuple[Extra, ...] = Field((), description="copies of the metrics: tensorboard, trackio, wandb")
    verl: dict[str, Any] = Field(
        default_factory=dict, description="the layout of `--engine verl` (docs/engines.md); unused by our own trainer"
    )

    @property
    def planned_turns(self) -> int:
        """Turns of a step of RL of which none ends early."""
        return self.rollout.tasks * self.rollout.samples * self.episode.turns

    def heldout(self) -> list[Task]:
        """Return the held-out tasks, shuffled by the evaluation's seed: any first n of them are a fair sample."""
        found = self.heldout_tasks.tasks("heldout")
        random.Random(f"heldout-{self.evaluation.seed}").shuffle(found)
        return found

    @field_validator("name")
    @classmethod
    def _plain_name(cls, name: str) -> str:
        if "/" in name or name.startswith("."):
            raise ValueError("the name of a run is a plain directory name")
        return name


def check_recipe(recipe: Recipe) -> None:
    """Import the recipe's plug-ins, then raise :class:`ConfigError` for names and combinations that cannot work."""
    load_plugins(recipe.plugins)
    recipe.episode.check()
    data = recipe.coldstart is not None or recipe.coldstart_file is not None
    if recipe.coldstart is not None and recipe.coldstart_file is not None:
        raise ConfigError("give coldstart (make the data) or coldstart_file (use a file), not both")
    if recipe.coldstart is not None and recipe.coldstart.source != "program":
        raise ConfigError(
            f"coldstart.source {recipe.coldstart.source!r}: a run asks the program teacher alone; make a model's data "
            "with 'drkernel coldstart --source ... --out FILE' and give coldstart_file=FILE"
        )
    if recipe.sft is not None and not data:
        raise ConfigError("the sft stage needs data: a coldstart section, or coldstart_file=PATH")
    for method in recipe.select:
        filters.check("select", method.name, method.options)
    if recipe.policy.from_scratch and not data:
        raise ConfigError("qwen3-pocket learns its tokenizer from cold-start data: add a coldstart section")
    if recipe.rl is not None:
        check_methods(recipe.rl.learner)
        _check_backend(recipe.rollout)
        _check_target(recipe.episode, recipe.rl.learner)
        if recipe.rollout.refill and not any(method.name == "uninformative" for method in recipe.rl.learner.rejection):
            raise ConfigError(
                "rollout.refill replaces what rl.learner.rejection 'uninformative' drops; name that one too"
            )
    context, longest = recipe.rollout.context, recipe.policy.pocket.context
    if recipe.policy.from_scratch and context > longest:
        raise ConfigError(f"rollout.context {context} is more than policy.pocket.context {longest}")


def check_same_run(directory: Path, recipe: Recipe) -> None:
    """Raise :class:`ConfigError`, naming the keys that differ, when the run in ``directory`` has another recipe."""
    there = load_config(Recipe, directory / "config.yaml")
    bound = [item for item in differences(there, recipe) if item[0].partition(".")[0] not in FREE]
    if bound:
        said = "; ".join(f"{key} is {old!r} there, {new!r} here" for key, old, new in bound)
        raise ConfigError(
            f"{directory} holds a run of another recipe ({said}); choose another name (name=...), or take it as it "
            f"is: drkernel train --resume {directory}"
        )


def _check_backend(rollout: RolloutConfig) -> None:
    """Raise :class:`ConfigError` for what a server cannot be asked for."""
    if rollout.backend == "local":
        return
    if rollout.sampling.stop_at_fence:
        raise ConfigError(
            f"rollout.sampling.stop_at_fence: only the local backend can; rollout.backend is {rollout.backend}"
        )


def _check_target(episode: EpisodeConfig, learner: LearnerConfig) -> None:
    """Raise :class:`ConfigError` for a target that it does not pay to reach."""
    method = learner.advantage
    gamma = inspect.signature(registry.advantage.get(method.name)).parameters.get("gamma")
    if episode.target is None or episode.turns == 1 or gamma is None:
        return
    if float(method.options.get("gamma", gamma.default)) >= 1:
        raise ConfigError(
            "episode.target ends a conversation at its first fast answer, and a sum with gamma 1 (rl.learner.advantage "
            f"{method.name}) pays for every answer: lazy, lazy, fast earns more than fast at once. Choose a smaller "
            "gamma, trloo_best, or episode.target=null"
        )


def of_rank(recipe: Recipe, local_rank: int) -> Recipe:
    """The recipe as a rank of ``torchrun`` runs it: from the judge's card on, every rank measures on one of its own."""
    settings = recipe.episode.settings
    if settings.place.kind != "cuda" or not local_rank:
        return recipe
    first = int(settings.device.partition(":")[2])
    own = settings.model_copy(update={"device": f"cuda:{first + local_rank}"})
    return recipe.model_copy(update={"episode": recipe.episode.model_copy(update={"settings": own})})


def make_pool(recipe: Recipe) -> Pool:
    """Open the pool that the recipe asks for; the caller closes it."""
    from drkernel.gym.pools.local import LocalPool

    return LocalPool(slots=recipe.pool.slots, cache=recipe.pool.cache if recipe.judge_seed is not None else 0)
