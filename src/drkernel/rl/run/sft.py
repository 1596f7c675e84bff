"""Supervised learning on conversations, with the loss on the assistant's tokens alone, and copying practice."""

import ast
import math
import random
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Literal

import torch
from pydantic import Field

from drkernel.config import Config, ConfigError
from drkernel.registry import Method
from drkernel.rl.data.coldstart import read_chats, select
from drkernel.rl.data.problem import TeacherProblem, generate_problems, generate_tasks, reference_source
from drkernel.rl.data.writer import RIGHT, ProgramTeacher, TeacherConfig
from drkernel.rl.model.policy import Example, Policy, microbatches
from drkernel.rl.model.tokenizer import ChatTokenizer
from drkernel.rl.run.optimizers import OptimizerName, apply_gradient
from drkernel.task import Task

Messages = Sequence[dict[str, str]]
Learnt = Literal["all", "right"]


class SftConfig(Config):
    """Settings of supervised fine-tuning."""

    epochs: float = Field(3.0, gt=0, description="passes over the data; a fraction ends in the middle of one")
    lr: float = Field(1e-3, gt=0, description="peak learning rate")
    optimizer: OptimizerName = Field("adamw", description="muon takes fewer steps for a model made from scratch")
    warmup: float = Field(0.05, ge=0, lt=1, description="share of steps with a rising rate")
    final_lr: float = Field(0.1, ge=0, le=1, description="rate at the end as a share of the peak (cosine)")
    weight_decay: float = Field(0.01, ge=0)
    clip: float = Field(1.0, gt=0, description="bound of the gradient's norm")
    batch_tokens: int = Field(8192, ge=64, description="tokens of one optimiser step, about")
    batch_rows: int | None = Field(
        None, ge=1, description="conversations of one optimiser step, in place of batch_tokens"
    )
    micro_tokens: int = Field(4096, ge=64, description="tokens of one forward pass: bounds memory")
    validation: float = Field(0.05, ge=0, lt=0.5, description="share of rows kept for the validation loss")
    learn: Learnt = Field("all", description="answers that are learnt; 'right': wrong ones are only there to be mended")


def encode_conversation(tokenizer: ChatTokenizer, messages: Messages) -> Example:
    """Encode a conversation as rollouts build it, with the assistant's ids (including the end token) in the mask, but
    for messages of ``weight`` 0."""
    ids: list[int] = []
    mask: list[bool] = []
    for index, message in enumerate(messages):
        role, content = message["role"], message["content"]
        if role != ("user", "assistant")[index % 2]:
            raise ValueError(f"message {index} is of role {role!r}; conversations alternate user, assistant, ...")
        if role == "user":
            new = tokenizer.prompt_ids(content) if index == 0 else tokenizer.feedback_ids(content, ended=True)
        else:
            new = [*tokenizer.encode(content), tokenizer.end_id]
        ids += new
        mask += [role == "assistant" and message.get("weight") != "0"] * len(new)
    return Example(ids, mask)


def load_conversations(path: Path, chosen: Sequence[Method] = (), learn: Learnt = "all") -> list[list[dict[str, str]]]:
    """Load the ``messages`` of every row of a JSONL or parquet file (cold-start data, or any chat data in one of the
    published layouts), or of those rows that the filters ``chosen`` keep. With ``learn``
    'right' answers that were not graded as correct get ``weight`` 0.

    Raises :class:`ConfigError` naming a malformed line, when there are no rows, or none with grades that are asked for.
    """
    rows = select(read_chats(path), chosen)
    for row in rows if learn == "right" else ():
        if len(grades := row.get("turns") or ()) != len(row["messages"]) // 2:
            raise ConfigError(f"sft.learn 'right' needs rows with graded 'turns'; one of {path} has none")
        for message, grade in zip(row["messages"][1::2], grades, strict=True):
            message["weight"] = "1" if grade["status"] == "correct" else "0"
    return [row["messages"] for row in rows]


def split_rows(count: int, validation: float, seed: int) -> tuple[list[int], list[int]]:
    """Return the indices of training and validation rows."""
    order = list(range(count))
    random.Random(f"sft-split-{seed}").shuffle(order)
    kept = min(count - 1, round(count * validation)) if count > 1 else 0
    return sorted(order[kept:]), sorted(order[:kept])


def plan_batches(lengths: Sequence[int], config: SftConfig, seed: int) -> list[list[int]]:
    """Return the rows of every optimiser step, in order: reshuffled each epoch, a function of the arguments alone."""
    total = sum(lengths) * config.epochs
    steps: list[list[int]] = []
    used, epoch = 0.0, 0
    while used < total:
        order = list(range(len(lengths)))
        random.Random(f"sft-{seed}-{epoch}").shuffle(order)
        batch: list[int] = []
        filled = 0
        for row in order:
            if used >= total:
                break
            batch.append(row)
            filled += lengths[row]
            used += lengths[row]
            if filled >= config.batch_tokens if config.batch_rows is None else len(batch) == config.batch_rows:
                steps.append(batch)
                batch, filled = [], 0
        if batch:
            steps.append(batch)
        epoch += 1
    return steps


def lr_at(step: int, steps: int, config: SftConfig) -> float:
    """Learning rate of step ``step`` (from 0) of ``steps``: linear warm-up, then a cosine to the final rate."""
    warm = max(1, round(config.warmup * steps))
    if step < warm:
        return config.lr * (step + 1) / warm
    progress = (step - warm) / max(1, steps - warm)
    floor = config.final_lr
    return config.lr * (floor + (1 - floor) * 0.5 * (1 + math.cos(math.pi * min(1.0, progress))))


def sft_step(
    policy: Policy, optimizer: torch.optim.Optimizer, examples: Sequence[Example], lr: float, config: SftConfig
) -> dict[str, float]:
    """Take one optimiser step on the mean cross-entropy over all assistant tokens of the batch; return its metrics.

    A step whose gradient is not finite leaves the weights unchanged and reports ``skipped`` 1.
    """
    started = time.perf_counter()
    total = sum(sum(example.mask) for example in examples)
    if total == 0:
        raise ValueError("the batch has no assistant token to train on")
    world = policy.world
    loss_sum = 0.0
    batches = microbatches([len(example.ids) for example in examples], config.micro_tokens)
    for batch, counts in world.share(batches):
        loss = -policy.statistics([examples[index] for index in batch]).logprobs.sum() / total
        (loss * (world.size if counts else 0)).backward()  # sharding takes the mean over ranks
        loss_sum += float(loss.detach()) if counts else 0.0
    loss_sum = world.sum(loss_sum)
    norm, skipped = apply_gradient(policy, optimizer, lr, config.clip)
    return {
        "loss": loss_sum,
        "lr": lr,
        "grad_norm": norm,
        "skipped": float(skipped),
        "tokens": float(sum(len(example.ids) for example in examples)),
        "seconds": time.perf_counter() - started,
    }


@torch.no_grad()
def mean_loss(policy: Policy, examples: Sequence[Example], config: SftConfig) -> dict[str, float]:
    """Return the mean loss of the assistant tokens of ``examples``; empty when there are none."""
    if not examples:
        return {}
    total, loss = 0.0, 0.0
    batches = microbatches([len(example.ids) for example in examples], config.micro_tokens)
    for batch, counts in policy.world.share(batches):
        logprobs = policy.statistics([examples[index] for index in batch]).logprobs
        if counts:
            total += logprobs.numel()
            loss -= float(logprobs.sum())
    return {"val_loss": policy.world.sum(loss) / policy.world.sum(total)}


def run_sft(
    policy: Policy,
    optimizer: torch.optim.Optimizer,
    examples: Sequence[Example],
    config: SftConfig,
    *,
    seed: int,
    start: int = 0,
    on_step: Callable[[int, int, dict[str, Any]], None] = lambda step, steps, metrics: None,
) -> int:
    """Train from step ``start`` to the end, calling ``on_step(done, steps, metrics)`` after each; return the number of
    steps."""
    train, held = split_rows(len(examples), config.validation, seed)
    plan = plan_batches([len(examples[row].ids) for row in train], config, seed)
    for step in range(start, len(plan)):
        batch = [examples[train[row]] for row in plan[step]]
        metrics: dict[str, Any] = sft_step(policy, optimizer, batch, lr_at(step, len(plan), config), config)
        if step + 1 == len(plan) or (step + 1) % max(1, len(plan) // 10) == 0:
            metrics |= mean_loss(policy, [examples[row] for row in held], config)
        on_step(step + 1, len(plan), metrics)
    return len(plan)


def encode_rows(tokenizer: ChatTokenizer, rows: Iterable[Messages], context: int) -> list[Example]:
    """Encode every conversation that fits the context, truncated after its last complete turn that fits."""
    examples = []
    for messages in rows:
        for end in range(len(messages), 0, -2):
            example = encode_conversation(tokenizer, messages[:end])
            if len(example.ids) <= context:
                examples += [example] if any(example.mask) else []
                break
    return examples


# ---- Copying practice for a model trained from scratch: find a line, then write it down
#
# To write a kernel for a module, a model must find, for every line it writes, the corresponding line of the module. A
# model that has seen only a few hundred kernels memorises them instead. So before its first kernel it copies task
# modules: the prompt shows one, and the answer is its class under the name ``ModelNew``. The texts are tasks of the
# training split, thousands of them and no two alike. They make no claim about kernels, so there is nothing to verify.
#
# It also writes kernels: a conversation shows the program teacher's first answer, and goes on with its second, which
# keeps the first, launches it otherwise, or mends it. There are thousands of them, and nobody has graded them: they are
# as right, as lazy and as wrong as the teacher is by its plans. ``learn: right`` leaves out those that are meant to be
# wrong, so that the model sees mistakes without learning to make them. Fine-tuning on graded conversations follows.


PROMPT = "Write ModelNew in PyTorch.\n```python\n{module}\n```"
KERNEL_PROMPT = "Write ModelNew in Triton.\n```python\n{module}\n```"
AGAIN = "Improve ModelNew.\n```python\n{module}\n```"


class CopyingConfig(SftConfig):
    """Settings of the practice: those of supervised fine-tuning, and how much of what is copied."""

    tasks: int = Field(3000, ge=1, description="generated training tasks to copy, each once an epoch")
    task_seed: int = Field(1000, ge=0, description="of the generator")
    kernels: int = Field(0, ge=0, description="ungraded conversations of the program teacher, of two answers each")
    teacher: TeacherConfig = TeacherConfig()
    epochs: float = Field(1.0, gt=0)
    final_lr: float = Field(1.0, ge=0, le=1, description="the rate stays up: fine-tuning follows")


def practice(tokenizer: ChatTokenizer, config: CopyingConfig, context: int) -> list[Example]:
    """Return the conversations of copying practice."""
    tasks = generate_tasks("train", config.tasks, config.task_seed, checked=False)
    problems = generate_problems("train", config.kernels, config.task_seed + 1, checked=False, drawn=True)
    return [
        *copied_modules(tokenizer, tasks, context),
        *second_answers(tokenizer, problems, config.teacher, config.task_seed, context, config.learn),
    ]


def copy_of(reference: str) -> str:
    """Return the class ``Model`` of a module's source, renamed ``ModelNew``, with the imports before it.

    Raises ``ValueError`` when the source defines no class ``Model`` at its top level.
    """
    body = ast.parse(reference).body
    imports = [
        ast.get_source_segment(reference, node) for node in body if isinstance(node, ast.Import | ast.ImportFrom)
    ]
    classes = [node for node in body if isinstance(node, ast.ClassDef) and node.name == "Model"]
    if not classes:
        raise ValueError("the module defines no class Model")
    source = ast.get_source_segment(reference, classes[-1]) or ""
    head = "\n".join(line for line in imports if line)
    return f"{head}\n\n{source.replace('class Model', 'class ModelNew', 1)}"


def copied_modules(tokenizer: ChatTokenizer, tasks: Iterable[Task], context: int) -> list[Example]:
    """Return one conversation for each task that fits the context: the module, and its copy."""
    examples = []
    for task in tasks:
        messages = [
            {"role": "user", "content": PROMPT.format(module=task.reference.strip())},
            {"role": "assistant", "content": f"```python\n{copy_of(task.reference)}\n```"},
        ]
        examples.append(encode_conversation(tokenizer, messages))
    return [example for example in examples if len(example.ids) <= context]


def second_answers(
    tokenizer: ChatTokenizer,
    problems: Iterable[TeacherProblem],
    teacher: TeacherConfig,
    seed: int,
    context: int,
    learn: Learnt = "all",
) -> list[Example]:
    """Return one conversation for each problem that fits the context: the teacher's first answer and its second.

    ``seed`` draws the teacher's plans and launches. What is left without an answer to learn is left out.
    """
    rows = []
    for index, problem in enumerate(problems):
        answers = ProgramTeacher(problem, teacher, random.Random(f"repeat-{seed}-{index}"))
        module = reference_source(problem).strip()
        asked = (KERNEL_PROMPT.format(module=module), AGAIN.format(module=module))
        messages = []
        for question in asked:
            plan, source = answers.next_answer()
            weight = "1" if learn == "all" or plan in RIGHT else "0"
            messages.append({"role": "user", "content": question})
            messages.append({"role": "assistant", "content": f"```python\n{source.strip()}\n```", "weight": weight})
        rows.append(encode_conversation(tokenizer, messages))
    return [example for example in rows if len(example.ids) <= context and any(example.mask)]
