"""The built-in suite, named in ``suite/suite.yaml``: expressions of tensors, and KernelBench-format files beside it."""

from functools import lru_cache
from pathlib import Path

import yaml
from pydantic import Field, TypeAdapter, ValidationError

from drkernel.config import Config, did_you_mean
from drkernel.task import Precision, Provenance, Task
from drkernel.tasks.errors import TaskError

SUITE = Path(__file__).parent / "suite"
EXPRESSION = '''"""{about}"""

import torch
import torch.nn as nn
{functional}
{constants}


class Model(nn.Module):
    def forward(self, {arguments}) -> torch.Tensor:
        return {forward}


def get_inputs():
    return [{inputs}]


def get_init_inputs():
    return []
'''
"""the source of a task that is an expression"""


class SuiteEntry(Config):
    """One task in ``suite.yaml``."""

    precision: Precision = Field("fp32", description="declared precision")
    tags: tuple[str, ...] = Field((), description="kinds of work, for filtering")
    tiny: dict[str, int] = Field(description="constants for grading in milliseconds")
    small: dict[str, int] = Field(description="constants for a CPU")
    about: str = Field("", description="of an expression: what it is")
    full: dict[str, int] = Field({}, description="of an expression: constants that keep a data-centre GPU busy")
    inputs: dict[str, str] = Field({}, description="of an expression: how each tensor is drawn")
    forward: str = Field("", description="the expression; empty for a task with a file of its own")

    def source(self) -> str:
        """The module of an expression."""
        return EXPRESSION.format(
            about=self.about,
            functional="import torch.nn.functional as F\n" if "F." in self.forward else "",
            constants="\n".join(f"{name} = {size}" for name, size in self.full.items()),
            arguments=", ".join(f"{name}: torch.Tensor" for name in self.inputs),
            forward=self.forward,
            inputs=", ".join(self.inputs.values()),
        )


@lru_cache(maxsize=1)
def builtin_tasks() -> tuple[Task, ...]:
    """Every task of the suite, ordered by level and name."""
    rows = yaml.safe_load((SUITE / "suite.yaml").read_text(encoding="utf-8"))
    try:
        entries = TypeAdapter(dict[str, SuiteEntry]).validate_python(rows)
    except ValidationError as error:
        raise TaskError(f"suite.yaml: {error}") from error
    files = {str(path.relative_to(SUITE).with_suffix("")) for path in SUITE.glob("level*/*.py")}
    if odd := files ^ {name for name, entry in entries.items() if not entry.forward}:
        raise TaskError(f"suite.yaml and the suite's files do not name the same tasks: {', '.join(sorted(odd))}")
    return tuple(_task(name, entries[name]) for name in sorted(entries))


def builtin_task(name: str) -> Task:
    """Return one task by name: 'level1/softmax', with or without 'builtin/' in front. Raises ``TaskError`` if
    unknown."""
    wanted = name if name.startswith("builtin/") else f"builtin/{name}"
    for task in builtin_tasks():
        if task.id == wanted:
            return task
    near = did_you_mean(wanted, [task.id for task in builtin_tasks()])
    raise TaskError(f"the built-in suite has no task {name!r}; `drkernel tasks list` shows those that it has{near}")


def _task(name: str, entry: SuiteEntry) -> Task:
    file = "suite.yaml" if entry.forward else f"{name}.py"
    return Task(
        id=f"builtin/{name}",
        level=int(name[len("level")]),
        reference=entry.source() if entry.forward else (SUITE / file).read_text(encoding="utf-8"),
        precision=entry.precision,
        profiles={"tiny": entry.tiny, "small": entry.small, "full": {}},
        tags=entry.tags,
        provenance=Provenance(source="builtin", path=f"suite/{file}", license="Apache-2.0"),
    )
