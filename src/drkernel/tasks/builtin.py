"""The built-in suite: plain KernelBench-format files under ``suite/`` and their sizes in ``suite/suite.yaml``."""

from functools import lru_cache
from pathlib import Path

import yaml
from pydantic import Field, ValidationError

from drkernel.config import Config, did_you_mean
from drkernel.task import Precision, Provenance, Task
from drkernel.tasks.errors import TaskError

SUITE = Path(__file__).parent / "suite"


class SuiteEntry(Config):
    """One task's line in ``suite.yaml``."""

    precision: Precision = Field("fp32", description="declared precision")
    tags: tuple[str, ...] = Field((), description="kinds of work, for filtering")
    tiny: dict[str, int] = Field(description="constants for grading in milliseconds")
    small: dict[str, int] = Field(description="constants for a CPU")


@lru_cache(maxsize=1)
def builtin_tasks() -> tuple[Task, ...]:
    """Every task of the suite, ordered by level and name."""
    entries = yaml.safe_load((SUITE / "suite.yaml").read_text(encoding="utf-8"))
    files = {str(path.relative_to(SUITE).with_suffix("")) for path in SUITE.glob("level*/*.py")}
    if files != set(entries):
        odd = ", ".join(sorted(files ^ set(entries)))
        raise TaskError(f"suite.yaml and the suite's files do not name the same tasks: {odd}")
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


def _task(name: str, fields: object) -> Task:
    try:
        entry = SuiteEntry.model_validate(fields)
    except ValidationError as error:
        raise TaskError(f"suite.yaml: {name}: {error}") from error
    return Task(
        id=f"builtin/{name}",
        level=int(name[len("level")]),
        reference=(SUITE / f"{name}.py").read_text(encoding="utf-8"),
        precision=entry.precision,
        profiles={"tiny": entry.tiny, "small": entry.small, "full": {}},
        tags=entry.tags,
        provenance=Provenance(source="builtin", path=f"suite/{name}.py", license="Apache-2.0"),
    )
