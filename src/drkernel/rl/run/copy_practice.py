"""Copying practice for a model trained from scratch: find a line, then write it down.

To write a kernel for a module, a model must find, for every line it writes, the corresponding line of the module. A
model that has seen only a few hundred kernels memorises them instead. So before its first kernel it copies task
modules: the prompt shows one, and the answer is its class under the name ``ModelNew``. The texts are tasks of the
training split, thousands of them and no two alike. They make no claim about kernels, so there is nothing to verify.

To improve an answer a model must be able to keep it. So it also repeats kernels: a conversation shows one of the
program teacher's as the first answer, and the second is that kernel again. Unless asked to (``write``), it learns the
second alone, so that ungraded kernels teach no habits of writing: no launch and no step of it can be had from anywhere
but the answer above. With ``write`` it learns the first as well: thousands of kernels, for as many modules, at no
further cost. They are as right, as lazy and as wrong as the teacher is by its plans, and nobody has graded them;
fine-tuning on graded ones follows.
"""

from __future__ import annotations

import ast
import random
from collections.abc import Iterable

from pydantic import Field

from drkernel.rl.data.teacher.plans import ProgramTeacher, TeacherConfig
from drkernel.rl.data.teacher.problem import TeacherProblem
from drkernel.rl.data.teacher.reference import reference_source
from drkernel.rl.model.policy import Example
from drkernel.rl.model.tokenizer import ChatTokenizer
from drkernel.rl.run.sft import SftConfig, encode_conversation
from drkernel.task import Task

PROMPT = "Write ModelNew in PyTorch.\n```python\n{module}\n```"
KERNEL_PROMPT = "Write ModelNew in Triton.\n```python\n{module}\n```"
AGAIN = "Write ModelNew again."


class CopyingConfig(SftConfig):
    """Settings of the practice: those of supervised fine-tuning, and how much of what is copied."""

    tasks: int = Field(3000, ge=1, description="generated training tasks to copy, each once an epoch")
    task_seed: int = Field(1000, ge=0, description="of the generator")
    kernels: int = Field(0, ge=0, description="kernels of the program teacher, each repeated as a second answer")
    write: bool = Field(False, description="learn to write the repeated kernels too, ungraded as they are")
    epochs: float = Field(1.0, gt=0)
    final_lr: float = Field(1.0, ge=0, le=1, description="the rate stays up: fine-tuning follows")


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


def repeated_kernels(
    tokenizer: ChatTokenizer,
    problems: Iterable[TeacherProblem],
    teacher: TeacherConfig,
    seed: int,
    context: int,
    write: bool = False,
) -> list[Example]:
    """Return one conversation for each problem that fits the context: the teacher's first answer, and the same again.

    The mask holds the second answer, and the first if ``write``. ``seed`` draws the teacher's plans and launches.
    """
    examples = []
    for index, problem in enumerate(problems):
        _, source = ProgramTeacher(problem, teacher, random.Random(f"repeat-{seed}-{index}")).next_answer()
        answer = {"role": "assistant", "content": f"```python\n{source.strip()}\n```"}
        module = reference_source(problem).strip()
        asked = [{"role": "user", "content": KERNEL_PROMPT.format(module=module)}, answer]
        again = [{"role": "user", "content": AGAIN}, answer]
        first = encode_conversation(tokenizer, asked)
        whole = encode_conversation(tokenizer, asked + again)
        mask = [*(learnt and write for learnt in first.mask), *whole.mask[len(first.ids) :]]
        examples.append(Example(whole.ids, mask))
    return [example for example in examples if len(example.ids) <= context]
