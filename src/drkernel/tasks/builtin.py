"""The built-in suite, named in ``suite/suite.yaml``: rows of a few lines, and KernelBench-format files beside it."""

import ast
from functools import lru_cache
from pathlib import Path

import yaml
from pydantic import Field, TypeAdapter, ValidationError

from drkernel.config import Config, did_you_mean
from drkernel.task import Precision, Provenance, Task
from drkernel.tasks.errors import TaskError

SUITE = Path(__file__).parent / "suite"
MODULE = '''"""{about}"""

import torch
import torch.nn as nn
{functional}
{constants}


class Model(nn.Module):
{constructor}    def forward(self, {arguments}){returns}:
        {forward}


def get_inputs():
    return [{inputs}]


def get_init_inputs():
    return [{init}]
'''
"""the source of a task that is a row"""


class SuiteEntry(Config):
    """One task in ``suite.yaml``."""

    precision: Precision = Field("fp32", description="declared precision")
    tags: tuple[str, ...] = Field((), description="kinds of work, for filtering")
    tiny: dict[str, int] = Field(description="constants for grading in milliseconds")
    small: dict[str, int] = Field(description="constants for a CPU")
    about: str = Field("", description="of a row: what it is")
    full: dict[str, int | str] = Field({}, description="of a row: sizes for a data-centre GPU, and fractions as text")
    init: tuple[str, ...] = Field((), description="of a row: constants that the constructor is given")
    layers: dict[str, str] = Field({}, description="of a row: attributes that the constructor makes of them")
    inputs: dict[str, str] = Field({}, description="of a row: how each tensor is drawn")
    forward: str = Field("", description="of a row: lines, the last of which is returned; empty for a file of its own")

    def source(self) -> str:
        """The module of a row."""
        *lines, returned = self.forward.splitlines()
        code = f"{self.forward} {self.layers}"
        return MODULE.format(
            about=self.about,
            functional="import torch.nn.functional as F\n" if "F." in code else "",
            constants="\n".join(f"{name} = {value}" for name, value in self.full.items()),
            constructor=self._constructor() if self.layers else "",
            arguments=", ".join(f"{name}: torch.Tensor" for name in self.inputs),
            returns="" if isinstance(ast.parse(returned, mode="eval").body, ast.Tuple) else " -> torch.Tensor",
            forward="\n        ".join([*lines, f"return {returned}"]),
            inputs=", ".join(self.inputs.values()),
            init=", ".join(self.init),
        )

    def _constructor(self) -> str:
        kinds = {name: "int" if isinstance(self.full[name], int) else "float" for name in self.init}
        parameters = "".join(f", {name.lower()}: {kind}" for name, kind in kinds.items())
        made = "".join(f"        self.{name} = {value}\n" for name, value in self.layers.items())
        return f"    def __init__(self{parameters}):\n        super().__init__()\n{made}\n"


@lru_cache(maxsize=1)
def builtin_tasks() -> tuple[Task, ...]:
    """Every task of the suite, ordered by level and name."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # a tenth of the time, where PyYAML was built with libyaml
    rows = yaml.load((SUITE / "suite.yaml").read_text(encoding="utf-8"), loader)
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
