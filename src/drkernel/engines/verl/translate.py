"""Translates a recipe into verl's configuration.

Every key of a recipe is in one of three tables: translated to verl's keys, carried to our own code inside verl, or
without effect there. A value that verl cannot express is an error that names the key; so is a key in none of the tables
(``tests/unit/engines/test_verl_translate.py`` walks all of them).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError

from drkernel.config import Config, ConfigError, field_keys
from drkernel.registry import Method
from drkernel.rl.run.learner import LearnerConfig
from drkernel.rl.run.recipe import Recipe


class VerlSettings(Config):
    """How a recipe is laid out on a cluster."""

    nodes: int = Field(1, ge=1, description="machines that train")
    gpus: int = Field(8, ge=1, description="GPUs of each that train and sample; those of the judge are not among them")
    sampler_gpus: int = Field(0, ge=0, description="GPUs that sample beside those that train: rollout.staleness 1")
    sampler_parallel: int = Field(1, ge=1, description="GPUs that one copy of the sampler is split over")
    sampler_memory: float = Field(0.6, gt=0, lt=1, description="share of a GPU's memory that the sampler may take")
    sampler: str = Field("vllm", description="verl's name of the sampler: vllm or sglang; on a CPU it is our own")
    sequence_parallel: int = Field(1, ge=1, description="GPUs that share one sequence in training (Ulysses)")
    offload: bool = Field(False, description="keep weights and optimiser in the host's memory between their uses")
    workers: int = Field(8, ge=1, description="processes that play episodes")
    save_every: int = Field(20, ge=-1, description="steps between checkpoints; -1 saves none")
    extra: dict[str, Any] = Field(
        default_factory=dict, description="further keys of verl by dotted name, applied last; unknown ones are errors"
    )


def settings_of(section: dict[str, Any]) -> VerlSettings:
    """Read a recipe's ``verl`` section. Raises :class:`ConfigError` naming the key."""
    try:
        return VerlSettings.model_validate(section)
    except ValidationError as error:
        item = error.errors()[0]
        raise ConfigError(f"verl.{'.'.join(map(str, item['loc']))}: {item['msg']}") from None


# ---- Translates a recipe into verl's configuration


PLUGIN = "drkernel.engines.verl.plugin"
LOSSES = {"clipped": "vanilla", "reinforce": "gpg"}
"""Our losses, and those of verl that compute the same."""
REFERENCE = "actor_rollout_ref.ref."

TRANSLATED = (
    "name", "runs", "seed", "policy.model", "policy.dtype", "policy.device", "policy.lora",
    "policy.checkpoint_activations", "train_tasks", "heldout_tasks", "rollout.tasks", "rollout.samples",
    "rollout.refill", "rollout.staleness", "rollout.sampling", "rollout.context", "rollout.dtype", "rl.steps",
    "rl.learner.lr", "rl.learner.weight_decay", "rl.learner.clip", "rl.learner.loss", "rl.learner.schedule",
    "rl.learner.updates", "rl.learner.passes", "rl.learner.micro_tokens", "rl.learner.kl", "rl.learner.kl_coefficient",
    "evaluation.every", "evaluation.tasks", "evaluation.samples", "evaluation.temperature", "evaluation.top_p",
    "evaluation.seed", "checkpoint.keep", "plugins", "sinks", "verl",
)  # fmt: skip
"""Keys with counterparts among verl's."""
CARRIED = (
    "episode", "judge_seed", "rl.learner.advantage", "rl.learner.mismatch", "rl.learner.rejection",
    "rl.learner.mask_void_turns", "rl.learner.aggregation",
    "rl.learner.scale",
)  # fmt: skip
"""Keys that our agent loop and our trainer inside verl read."""
BEFORE = ("coldstart", "coldstart_file", "select", "copying", "sft", "policy.pocket", "policy.tokenizer")
"""Stages before RL, and what only they use: our own trainer runs them (``rl=null``), verl starts from their result."""
OTHERWISE = {
    "rollout.waves": "verl samples and grades every trajectory on its own",
    "rollout.threads": "of our own sampler",
    "rollout.backend": "verl has samplers of its own: verl.sampler",
    "rollout.server": "verl has samplers of its own: verl.sampler",
    "rollout.sampling.rows": "verl's sampler fills its cache as it can",
    "pool": "the judge is a service (--pool), or one local pool in each worker",
    "threads": "of our own trainer",
    "report": "the report reads files of our own trainer",
    "rl.log_samples": "verl writes samples with trainer.rollout_data_dir",
    "checkpoint.seconds": "verl saves by steps: verl.save_every",
    "evaluation.final_tasks": "verl evaluates evaluation.tasks, before the first step and after the last one too",
    "evaluation.final_samples": "as final_tasks",
}
"""Keys without effect on verl, and why."""
REFUSED = {
    "rollout.sampling.stop_at_fence": "verl's sampler sees ids alone; set it to false",
    "budget_minutes": "verl runs its steps; set it to null",
}
"""Keys whose every value but the default (of ``stop_at_fence``: False) is refused, and why."""


def handled(key: str) -> bool:
    """Whether the tables cover a key, itself or a section that contains it."""
    tables = (*TRANSLATED, *CARRIED, *BEFORE, *OTHERWISE, *REFUSED)
    sections = ("policy", "rollout", "rl", "rl.learner", "evaluation", "checkpoint")
    return key in sections or any(key == known or key.startswith(f"{known}.") for known in tables)


def translate(recipe: Recipe, pool: str | None = None) -> dict[str, Any]:
    """Return verl's configuration for a recipe, nested, over verl's defaults.

    Raises :class:`ConfigError` naming the key that verl cannot express.
    """
    _refuse(recipe)
    terms = settings_of(recipe.verl)
    parts = [
        _model(recipe, terms),
        _actor(recipe, terms),
        _rollout(recipe, terms),
        _data(recipe),
        _trainer(recipe, terms),
        _ours(recipe, pool),
        _processes(recipe, terms),
        terms.extra,
    ]
    nested: dict[str, Any] = {}
    for dotted in parts:
        for key, value in dotted.items():
            *path, last = key.split(".")
            section = nested
            for name in path:
                section = section.setdefault(name, {})
            section[last] = value
    return nested


def environment(recipe: Recipe) -> dict[str, str]:
    """Return the variables that every process of verl's needs."""
    found = {"VERL_USE_EXTERNAL_MODULES": ",".join((*recipe.plugins, PLUGIN)), "TOKENIZERS_PARALLELISM": "false"}
    if on_cpu(recipe):
        found |= {"VERL_PLATFORM": "cpu", "OMP_NUM_THREADS": "1", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
    return found


def on_cpu(recipe: Recipe) -> bool:
    """Whether verl is to run without GPUs."""
    return recipe.policy.device == "cpu"


def samples_in_half(recipe: Recipe) -> bool:
    """Whether the sampler's weights and cache are bf16: asked for, or the policy's own precision on GPUs."""
    return recipe.rollout.dtype == "bf16" or (recipe.policy.dtype == "bf16" and not on_cpu(recipe))


def directory(recipe: Recipe) -> Path:
    """Return the run's directory."""
    return Path(recipe.runs) / recipe.name


def start_model(recipe: Recipe) -> str:
    """Return the weights that RL starts from: those of the stages before it, where the recipe has any."""
    if recipe.sft is not None or recipe.copying is not None:
        return str((directory(recipe) / "checkpoints" / "sft").absolute())
    return recipe.policy.model


def learner_of(recipe: Recipe) -> LearnerConfig:
    """Return the learner's settings. Raises :class:`ConfigError` for a recipe without RL."""
    if recipe.rl is None:
        raise ConfigError("rl: verl runs the stage of reinforcement learning, and this recipe has none")
    return recipe.rl.learner


def _refuse(recipe: Recipe) -> None:
    """Raise :class:`ConfigError` for what verl cannot express."""
    if lost := [key for key, _ in field_keys(Recipe) if not handled(key)]:
        raise ConfigError(f"{', '.join(lost)}: not known to the verl engine")
    learner = learner_of(recipe)
    if recipe.policy.from_scratch and recipe.sft is None:
        raise ConfigError("policy.model qwen3-pocket: verl needs weights to start from; give the recipe an sft stage")
    allowed = {key: field.default for key, field in field_keys(Recipe)} | {"rollout.sampling.stop_at_fence": False}
    for key, why in REFUSED.items():
        value: Any = recipe
        for name in key.split("."):
            value = getattr(value, name)
        if value != allowed[key]:
            raise ConfigError(f"{key}: {why}")
    if recipe.episode.context.name != "full":
        raise ConfigError(f"episode.context {recipe.episode.context.name}: verl keeps the whole conversation (full)")
    if learner.loss.name not in LOSSES:
        raise ConfigError(f"rl.learner.loss {learner.loss.name}: on verl {' and '.join(LOSSES)}")
    if recipe.policy.lora is not None and recipe.policy.lora.dropout:
        raise ConfigError("policy.lora.dropout: verl's adapters have none")
    if recipe.rollout.staleness:
        _refuse_ahead(recipe)
    elif settings_of(recipe.verl).sampler_gpus:
        raise ConfigError("verl.sampler_gpus: with rollout.staleness 0 they would be idle while the others train")
    if recipe.rollout.tasks % learner.updates:
        raise ConfigError(
            f"rl.learner.updates {learner.updates}: verl divides the {recipe.rollout.tasks} prompts of a step evenly"
        )


def _refuse_ahead(recipe: Recipe) -> None:
    if not on_cpu(recipe) and not settings_of(recipe.verl).sampler_gpus:
        raise ConfigError(
            "rollout.staleness 1: on the GPUs that train a sampler sleeps meanwhile, older weights would win no time; "
            "give it GPUs of its own, verl.sampler_gpus"
        )
    if learner_of(recipe).updates > 1:
        raise ConfigError(f"rl.learner.updates {learner_of(recipe).updates}: 1 on verl with rollout.staleness 1")
    if recipe.policy.lora is not None:
        raise ConfigError("policy.lora: verl sends a sampler apart no adapters, rollout.staleness 1 needs them merged")


def sampler_size(recipe: Recipe, terms: VerlSettings) -> tuple[int, int]:
    """Return the GPUs that sample, and those of one copy of the sampler; on a CPU there is one copy."""
    apart = 1 if on_cpu(recipe) else terms.sampler_gpus
    gpus = apart if recipe.rollout.staleness else terms.nodes * terms.gpus
    return gpus, gpus if on_cpu(recipe) else terms.sampler_parallel


def _model(recipe: Recipe, terms: VerlSettings) -> dict[str, Any]:
    lora = recipe.policy.lora
    at = "actor_rollout_ref.model."
    found: dict[str, Any] = {
        at + "path": start_model(recipe),
        at + "use_remove_padding": not on_cpu(recipe),
        at + "enable_gradient_checkpointing": recipe.policy.checkpoint_activations,
    }
    if on_cpu(recipe):
        found[at + "override_config.attn_implementation"] = "sdpa"
    if lora is not None:
        targets = list(lora.targets)
        found |= {at + "lora_rank": lora.rank, at + "lora_alpha": lora.alpha, at + "target_modules": targets}
    return found


def _actor(recipe: Recipe, terms: VerlSettings) -> dict[str, Any]:
    learner, cpu = learner_of(recipe), on_cpu(recipe)
    low = recipe.policy.dtype == "bf16"
    at = "actor_rollout_ref.actor."
    arithmetic = "bf16" if low else "fp32"
    arithmetics = {
        "strategy": "fsdp2",
        "model_dtype": "fp32",  # master weights
        "dtype": "bfloat16" if low else "float32",
        "mixed_precision": {"param_dtype": arithmetic, "reduce_dtype": "fp32", "buffer_dtype": "fp32"},
        "param_offload": terms.offload,
        "use_torch_compile": not cpu,
    }
    return {
        at + "strategy": "fsdp2",
        # the reference of a KL penalty computes as the policy does: before the first step they are equal
        **{f"{role}fsdp_config.{key}": value for role in (at, REFERENCE) for key, value in arithmetics.items()},
        at + "fsdp_config.optimizer_offload": terms.offload,
        at + "fsdp_config.seed": recipe.seed,
        at + "use_torch_compile": not cpu,
        at + "ulysses_sequence_parallel_size": terms.sequence_parallel,
        at + "use_dynamic_bsz": True,
        at + "ppo_max_token_len_per_gpu": micro_tokens(recipe, terms),
        at + "entropy_from_logits_with_chunking": True,
        at + "ppo_mini_batch_size": recipe.rollout.tasks // learner.updates,
        at + "ppo_epochs": learner.passes,
        at + "shuffle": False,
        at + "data_loader_seed": recipe.seed,
        at + "grad_clip": learner.clip,
        at + "optim.clip_grad": learner.clip,
        at + "optim.lr": learner.lr,
        at + "optim.weight_decay": learner.weight_decay,
        at + "optim.betas": [0.9, 0.95],
        **_schedule(learner.schedule, recipe.rl.steps if recipe.rl is not None else 0),
        **_loss(learner.loss),
        # the weights that our trainer writes make this sum the recipe's own aggregation
        at + "loss_agg_mode": "seq-mean-token-sum-norm",
        at + "loss_scale_factor": 1,
        at + "entropy_coeff": 0,
        at + "use_kl_loss": learner.kl_coefficient > 0,
        at + "kl_loss_coef": learner.kl_coefficient,
        at + "kl_loss_type": learner.kl,
        REFERENCE + "log_prob_use_dynamic_bsz": True,
        "critic.enable": False,
    }


def micro_tokens(recipe: Recipe, terms: VerlSettings) -> int:
    """verl's micro-batches hold whole sequences: at least the longest of them, shared by the GPUs of a sequence."""
    longest = -(-recipe.rollout.context // terms.sequence_parallel)
    return max(learner_of(recipe).micro_tokens, longest)


def _schedule(method: Method, steps: int) -> dict[str, Any]:
    at = "actor_rollout_ref.actor.optim."
    options = dict(method.options)
    warmup = {at + "lr_warmup_steps": options.pop("warmup", 0)}
    if method.name == "constant" and not options:
        return {at + "lr_scheduler_type": "constant", **warmup}
    if method.name == "cosine" and options.get("total") == steps:  # verl's cosine ends with the last step
        return {at + "lr_scheduler_type": "cosine", at + "min_lr_ratio": options.get("floor", 0.0), **warmup}
    raise ConfigError(f"rl.learner.schedule {method.name}: verl has constant, and cosine with total: rl.steps")


def _loss(method: Method) -> dict[str, Any]:
    at = "actor_rollout_ref.actor."
    options = dict(method.options)
    found: dict[str, Any] = {at + "policy_loss.loss_mode": LOSSES[method.name]}
    if method.name == "clipped":
        low, high, dual = options.get("clip_low", 0.2), options.get("clip_high", 0.28), options.get("dual_clip", 3.0)
        found |= {at + "clip_ratio": low, at + "clip_ratio_low": low, at + "clip_ratio_high": high}
        found[at + "clip_ratio_c"] = 1e9 if dual is None else dual
    return found


def _rollout(recipe: Recipe, terms: VerlSettings) -> dict[str, Any]:
    cpu, sampling, evaluation = on_cpu(recipe), recipe.rollout.sampling, recipe.evaluation
    gpus, parts = sampler_size(recipe, terms)
    at = "actor_rollout_ref.rollout."
    return {
        at + "name": "drkernel" if cpu else terms.sampler,
        at + "mode": "async",
        at + "load_format": "auto",
        at + "dtype": "bfloat16" if samples_in_half(recipe) else "float32",
        at + "n": recipe.rollout.samples,
        at + "seed": recipe.seed,
        at + "temperature": sampling.temperature,
        at + "top_p": sampling.top_p,
        at + "top_k": -1,
        at + "calculate_log_probs": True,
        at + "prompt_length": recipe.rollout.context - sampling.max_tokens,
        at + "response_length": recipe.rollout.context,
        at + "max_model_len": recipe.rollout.context,
        at + "max_num_seqs": sampling.rows if cpu else 256,
        at + "gpu_memory_utilization": terms.sampler_memory,
        at + "tensor_model_parallel_size": parts,
        **(_apart(recipe, terms, gpus) if recipe.rollout.staleness else {}),
        at + "free_cache_engine": not cpu,
        at + "log_prob_use_dynamic_bsz": True,
        at + "log_prob_max_token_len_per_gpu": micro_tokens(recipe, terms),
        at + "val_kwargs.n": evaluation.samples,
        at + "val_kwargs.do_sample": evaluation.temperature > 0,
        at + "val_kwargs.temperature": evaluation.temperature,
        at + "val_kwargs.top_p": evaluation.top_p or sampling.top_p,
        at + "agent.num_workers": terms.workers,
        at + "agent.default_agent_loop": "drkernel",
        at + "agent.agent_loop_config_path": str((directory(recipe) / "verl" / "agent.yaml").absolute()),
    }


def _apart(recipe: Recipe, terms: VerlSettings, gpus: int) -> dict[str, Any]:
    at = "actor_rollout_ref.rollout."
    of_node = min(gpus, terms.gpus)
    if gpus % of_node:
        raise ConfigError(f"verl.sampler_gpus {gpus}: whole machines of verl.gpus {terms.gpus}, or a part of one")
    return {
        "actor_rollout_ref.hybrid_engine": False,
        at + "nnodes": gpus // of_node,
        at + "n_gpus_per_node": of_node,
        at + "checkpoint_engine.backend": "drkernel" if on_cpu(recipe) else "nccl",
        "trainer.v1.separate_async.parameter_sync_step": 1,
    }


def _data(recipe: Recipe) -> dict[str, Any]:
    place = (directory(recipe) / "verl").absolute()
    context, answer = recipe.rollout.context, recipe.rollout.sampling.max_tokens
    if answer >= context:
        raise ConfigError(
            f"rollout.sampling.max_tokens {answer}: no prompt fits beside it in rollout.context {context}"
        )
    return {
        "data.train_files": str(place / "train.jsonl"),
        "data.val_files": str(place / "heldout.jsonl"),
        "data.train_batch_size": recipe.rollout.tasks,
        "data.max_prompt_length": context - answer,
        "data.max_response_length": context,
        "data.filter_overlong_prompts": True,
        "data.return_raw_chat": True,
        "data.shuffle": True,
        "data.seed": recipe.seed,
        "data.dataloader_num_workers": 0,
    }


def _trainer(recipe: Recipe, terms: VerlSettings) -> dict[str, Any]:
    assert recipe.rl is not None
    return {
        "trainer.use_v1": True,
        "trainer.v1.trainer_mode": "drkernel_ahead" if recipe.rollout.staleness else "drkernel",
        "trainer.device": "cpu" if on_cpu(recipe) else "cuda",
        "trainer.nnodes": terms.nodes,
        "trainer.n_gpus_per_node": terms.gpus,
        "trainer.total_epochs": 1_000_000,  # the number of steps ends the run
        "trainer.total_training_steps": recipe.rl.steps,
        "trainer.project_name": "drkernel",
        "trainer.experiment_name": recipe.name,
        "trainer.default_local_dir": str((directory(recipe) / "verl" / "checkpoints").absolute()),
        "trainer.logger": ["console", "file", *recipe.sinks],
        "trainer.val_before_train": True,
        "trainer.test_freq": recipe.evaluation.every,
        "trainer.save_freq": terms.save_every,
        "trainer.max_actor_ckpt_to_keep": recipe.checkpoint.keep,
        "trainer.resume_mode": "auto",
        # the advantage is computed by our trainer; verl asks for a name that needs no critic
        "algorithm.adv_estimator": "grpo",
        "algorithm.use_kl_in_reward": False,
        **(_buffer(recipe) if recipe.rollout.refill or recipe.rollout.staleness else {}),
    }


def _buffer(recipe: Recipe) -> dict[str, Any]:
    at = "trainer.v1.sampler."
    return {
        "data.gen_batch_size": 1,  # so that verl draws as many prompts as are missing; their order does not change
        at + "custom_sampler.path": "pkg://drkernel.engines.verl.trainer",
        at + "custom_sampler.name": "KernelBuffer",
        at + "sampler_kwargs": {
            "refill": recipe.rollout.refill, "learner": "${drkernel.learner}",
        },
    }  # fmt: skip


def _ours(recipe: Recipe, pool: str | None) -> dict[str, Any]:
    return {
        "drkernel.episode": recipe.episode.model_dump(mode="json"),
        "drkernel.learner": learner_of(recipe).model_dump(mode="json"),
        "drkernel.planned": recipe.planned_turns,
        "drkernel.max_tokens": recipe.rollout.sampling.max_tokens,
        "drkernel.context": recipe.rollout.context,
        "drkernel.judge_seed": recipe.judge_seed,
        "drkernel.pool": pool,
        "drkernel.seed": recipe.seed,
    }


def _processes(recipe: Recipe, terms: VerlSettings) -> dict[str, Any]:
    found: dict[str, Any] = {"ray_kwargs.ray_init.runtime_env.env_vars": environment(recipe), "reward.num_workers": 1}
    if on_cpu(recipe):
        found |= {
            "ray_kwargs.ray_init.num_cpus": 16,  # shares of the machine's cores, which verl reserves by the dozen
            "ray_kwargs.ray_init.num_gpus": terms.nodes * terms.gpus + recipe.rollout.staleness,
            "ray_kwargs.ray_init.include_dashboard": False,
            "ray_kwargs.ray_init.object_store_memory": 500_000_000,
            "reward.reward_model.rollout.name": "drkernel",
            "transfer_queue.backend.SimpleStorage.num_data_storage_units": 1,
        }
    else:
        found["reward.reward_model.rollout.name"] = terms.sampler
    return found
