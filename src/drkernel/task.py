"""The Task record: what a candidate is asked to speed up.

A task is a reference PyTorch module in KernelBench's format, as source text: a class ``Model``, a function
``get_inputs()`` and a function ``get_init_inputs()``. The answer to it is a source with a class ``ModelNew`` of the
same constructor and ``forward``. Sizes are module-level constants; a *size profile* overrides them by name.
"""

import hashlib
from typing import Literal

from pydantic import Field, field_validator

from drkernel.config import Config, ConfigError

Precision = Literal["fp64", "fp32", "tf32", "fp16", "bf16"]


class Tolerance(Config):
    """How far an output may be from the fp64 oracle. ``None`` selects the default of the declared precision."""

    rtol: float | None = Field(None, ge=0, description="relative part; None takes the precision's default")
    atol_scale: float | None = Field(
        None, ge=0, description="absolute part in units of the reference output's spread; None takes the default"
    )


class Provenance(Config):
    """The origin of a task."""

    source: str = Field(description="'builtin', 'kernelbench', 'parquet', 'jsonl', 'file' or 'generated'")
    path: str | None = Field(None, description="file, row or generator the text came from")
    license: str | None = Field(None, description="licence of the text where known")


class Task(Config):
    """One problem: a reference module and the terms on which an answer is judged."""

    schema_version: Literal[1] = 1
    id: str = Field(min_length=1, description="unique name, e.g. 'builtin/level1/softmax'")
    level: int = Field(1, ge=0, description="1 single operators, 2 fusions, 3 blocks; 0 unknown")
    reference: str = Field(min_length=1, description="Python source with Model, get_inputs, get_init_inputs")
    precision: Precision = Field("fp32", description="declared precision: sets the tolerance and what a downgrade is")
    tolerance: Tolerance = Tolerance()
    profiles: dict[str, dict[str, int]] = Field(
        default_factory=dict, description="size profiles (tiny, small, full): module constants overridden by name"
    )
    distribution: Literal["open", "fixed"] = Field(
        "open", description="'fixed': inputs are only ever drawn as get_inputs() does, and checked on nothing else"
    )
    shapes: Literal["noted", "fixed", "free"] = Field(
        "noted",
        description="a wrong answer at other sizes is noted, not asked for ('fixed'), or wrong ('free')",
    )
    special_values: Literal["noted", "ignored", "checked"] = Field(
        "noted", description="so with inputs that hold NaN or infinity, where the reference defines what comes out"
    )
    modes: Literal["noted", "ignored", "checked"] = Field(
        "noted", description="so with the other of train and eval mode, and with buffers that a call updates"
    )
    family: str | None = Field(None, description="family of generated tasks, used to split train from held-out")
    tags: tuple[str, ...] = ()
    provenance: Provenance = Provenance(source="file")

    @field_validator("reference")
    @classmethod
    def _no_nul(cls, text: str) -> str:
        if "\0" in text:
            raise ValueError("the reference source contains NUL bytes")
        return text

    @property
    def content_hash(self) -> str:
        """Return the SHA-256 (hex) of every field that can change a verdict."""
        return hashlib.sha256(self.model_dump_json(exclude={"provenance", "tags", "family"}).encode()).hexdigest()


def sized_reference(task: Task, profile: str | None) -> str:
    """Return the reference source with the profile's constants in place of the module's own.

    ``None`` returns the source unchanged. Raises ``KeyError``, listing the task's profiles, for an unknown profile, and
    ``ValueError`` when a profile names a constant that the source does not define at module level as a plain number.
    """
    if profile is None:
        return task.reference
    if profile not in task.profiles:
        known = ", ".join(sorted(task.profiles)) or "none"
        raise KeyError(f"task {task.id} has no size profile {profile!r}; it has: {known}")
    return override_constants(task.reference, task.profiles[profile])


def override_constants(source: str, constants: dict[str, int]) -> str:
    """Return ``source`` with module-level ``NAME = <literal>`` assignments replaced; line numbers do not change.

    Raises ``ValueError`` for a constant that is not assigned a plain number at module level.
    """
    import ast

    lines = source.splitlines(keepends=True)
    found: set[str] = set()
    for node in ast.parse(source).body:
        if not (isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name)):
            continue
        name = node.targets[0].id
        if name not in constants:
            continue
        if node.end_lineno != node.lineno:
            raise ValueError(f"constant {name} spans several lines; it must be one plain assignment")
        lines[node.lineno - 1] = f"{name} = {constants[name]!r}\n"
        found.add(name)
    missing = set(constants) - found
    if missing:
        raise ValueError(f"the source defines no module-level constant named {', '.join(sorted(missing))}")
    return "".join(lines)


class TaskError(ConfigError):
    """A task that cannot be used; the message names the task or file, the cause and what to change."""
