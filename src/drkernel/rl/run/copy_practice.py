"""Copying practice for a model trained from scratch: find a line, then write it down.

To write a kernel for a module, a model must find, for every line it writes, the corresponding line of the module. A
model that has seen only a few hundred kernels memorises them instead. So before its first kernel it copies task
modules: the prompt shows one, and the answer is its class under the name ``ModelNew``. The texts are tasks of the
training split, thousands of them and no two alike. They make no claim about kernels, so there is nothing to verify.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable

from pydantic import Field

from drkernel.rl.model.policy import Example
from drkernel.rl.model.tokenizer import ChatTokenizer
from drkernel.rl.run.sft import SftConfig, encode_conversation
from drkernel.task import Task

PROMPT = "Write ModelNew in PyTorch.\n```python\n{module}\n```"
AGAIN = "Write ModelNew again."


class CopyingConfig(SftConfig):
    """Settings of the practice: those of supervised fine-tuning, and the number of modules."""

    tasks: int = Field(3000, ge=1, description="generated training tasks to copy, each once an epoch")
    task_seed: int = Field(1000, ge=0, description="of the generator")
    turns: int = Field(1, ge=1, description="times that each is written: later turns may look at the answer before")
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


def copying_examples(tokenizer: ChatTokenizer, tasks: Iterable[Task], context: int, turns: int = 1) -> list[Example]:
    """Return one conversation for each task that fits the context: the copy, and the copy again ``turns - 1`` times."""
    examples = []
    for task in tasks:
        answer = {"role": "assistant", "content": f"```python\n{copy_of(task.reference)}\n```"}
        messages = [{"role": "user", "content": PROMPT.format(module=task.reference.strip())}, answer]
        messages += [{"role": "user", "content": AGAIN}, answer] * (turns - 1)
        example = encode_conversation(tokenizer, messages)
        if len(example.ids) <= context:
            examples.append(example)
    return examples
