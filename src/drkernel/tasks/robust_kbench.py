"""robust-kbench's task folders as tasks: a module with one of its settings each.

A task's folder holds ``func_forward.py`` (``Model``, a ``get_inputs`` with keyword arguments) and
``config_forward.json``, and for some tasks the same with ``backward``. A config lists arguments of the constructor
(``init``), of ``get_inputs`` (``input``) and of both (``shared``), twice: under ``single_`` the settings that are
timed, under ``multi_`` those that an answer is to be right for besides. Every combination is a task. Sizes become
module-level constants, so that large settings are checked thin and timed as they are.

Of a backward folder the reference returns the gradients of the floating-point inputs, then of the parameters, for a
gradient of the output, which is its first argument.
"""

from __future__ import annotations

import io
import itertools
import keyword
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from drkernel.config import did_you_mean
from drkernel.task import Precision, Provenance, Task
from drkernel.tasks.errors import TaskError

Direction = Literal["forward", "backward"]
Arguments = dict[str, bool | int | float | str | None]
CONFIGS: tuple[Direction, ...] = ("forward", "backward")


class ForwardConfig(BaseModel):
    """``config_forward.json``: lists of keyword arguments."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    single_init_configs: list[Arguments]
    single_input_configs: list[Arguments]
    single_shared_configs: list[Arguments]
    multi_init_configs: list[Arguments] = []
    multi_input_configs: list[Arguments] = []
    multi_shared_configs: list[Arguments] = []

    def settings(self) -> Iterator[tuple[str, Arguments, Arguments]]:
        """Yield (name, arguments of the constructor, arguments of ``get_inputs``); shared ones go over the others."""
        single = (self.single_init_configs, self.single_input_configs, self.single_shared_configs)
        multi = (self.multi_init_configs, self.multi_input_configs, self.multi_shared_configs)
        for kind, lists in (("single", single), ("multi", multi)):
            for number, (init, drawn, shared) in enumerate(itertools.product(*lists), 1):
                yield f"{kind}{number}", init | shared, drawn | shared


def load_robust_kbench(named: Path, precision: Precision) -> Iterator[Task]:
    """Yield the tasks of ``DIR[/SETTING]`` (``multi2``; ``multi``: all of that kind) or ``DIR/backward[/SETTING]``.

    DIR is the repository or a folder under its ``tasks``. Without a setting the ``single`` ones are given, forward and
    backward. Raises :class:`TaskError` for files that are not of the format, and for names that are not there.
    """
    root, directions, setting = _parts(named)
    root = root / "tasks" if (root / "tasks").is_dir() else root
    configs = sorted(
        (path for which in directions for path in root.rglob(f"config_{which}.json")),
        key=lambda path: ([(len(part), part) for part in path.parent.parts], path.name != "config_forward.json"),
    )
    if not configs:
        raise TaskError(f"{root} holds no task folder of robust-kbench (config_{directions[0]}.json)")
    names: list[str] = []
    for path in configs:
        for name, init, drawn in _read(path).settings():
            names.append(name)
            whole = setting in (None, "single", "multi")
            if name.startswith(setting or "single") if whole else name == setting:
                yield _task(path, name, init, drawn, precision)
    if setting is not None and not any(name.startswith(setting) for name in names):
        raise TaskError(f"{root} has no setting {setting!r}{did_you_mean(setting, names)}")


def _parts(named: Path) -> tuple[Path, tuple[Direction, ...], str | None]:
    """The folder, the directions that are asked for, and a setting's name where one is given (by itself: forward)."""
    directions, setting = CONFIGS, None
    if re.fullmatch(r"(single|multi)\d*", named.name):
        named, directions, setting = named.parent, CONFIGS[:1], named.name
    if named.name in CONFIGS and not named.is_dir():
        named, directions = named.parent, CONFIGS[CONFIGS.index(named.name) :][:1]
    if named.is_dir():
        return named, directions, setting
    around = [path.name for path in named.parent.iterdir() if path.is_dir()] if named.parent.is_dir() else []
    raise TaskError(f"{named} is no folder of robust-kbench's tasks{did_you_mean(named.name, around)}")


def _read(path: Path) -> ForwardConfig:
    try:
        return ForwardConfig.model_validate_json(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise TaskError(f"cannot read {path}: {error}") from error
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = ".".join(str(part) for part in first["loc"]) or "(file)"
        raise TaskError(f"{path}: field {field}: {first['msg']}") from error


def _task(config: Path, setting: str, init: Arguments, drawn: Arguments, precision: Precision) -> Task:
    folder, direction = config.parent, config.stem.removeprefix("config_")
    file = folder / f"func_{direction}.py"
    try:
        text = file.read_text(encoding="utf-8")
        source = _reference(text, direction == "backward", init, drawn)
    except (OSError, UnicodeDecodeError) as error:
        raise TaskError(f"cannot read {file}: {error}") from error
    except (tokenize.TokenError, SyntaxError) as error:
        raise TaskError(f"{file} is not valid Python: {error}") from error
    level = re.fullmatch(r"level_(\d+)", folder.parent.name)
    name = f"kernelbench/{folder.parent.name}/{folder.name}" if level else folder.name
    return Task(
        id=f"robust-kbench/{name}{'/backward' if direction == 'backward' else ''}/{setting}",
        level=int(level[1]) if level else 0,
        reference=source,
        precision=precision,
        tags=(direction,),
        provenance=Provenance(source="robust-kbench", path=str(file), license="Apache-2.0"),
    )


def _reference(text: str, backward: bool, init: Arguments, drawn: Arguments) -> str:
    """The folder's module with a setting's numbers in place of arguments."""
    for name in (*init, *drawn):
        if not name.isidentifier() or keyword.iskeyword(name):
            raise SyntaxError(f"the setting's name {name!r} is no Python name")
    taken = {token.string for token in tokenize.generate_tokens(io.StringIO(text).readline)}
    constants: dict[str, int] = {}

    def written(arguments: Arguments) -> dict[str, str]:
        """Expressions of the arguments: whole numbers by a constant, shared where name and number are."""
        expressions = {}
        for key, value in arguments.items():
            name = key.upper()
            while isinstance(value, int) and (name in taken or constants.get(name, value) != value):
                name += "_"
            if isinstance(value, int) and not isinstance(value, bool):
                constants[name] = value
            expressions[key] = name if name in constants and not isinstance(value, bool) else repr(value)
        return expressions

    inputs = ", ".join(f"{key}={value}" for key, value in written(drawn).items())
    constructor = ", ".join(f"{key!r}: {value}" for key, value in written(init).items())
    lines = "\n".join(f"{name} = {value}" for name, value in constants.items())
    return f"""{_renamed(text, backward).rstrip()}


{lines}

{_GRADIENTS if backward else _OUTPUTS}

def get_init_inputs():
    return [[], {{{constructor}}}]
""".replace("draw_setting()", f"draw_setting({inputs})")


_OUTPUTS = """
def get_inputs():
    return draw_setting()
"""
_GRADIENTS = """
class Model(ForwardModel):
    \"\"\"The gradients of the floating-point inputs, then of the parameters, for a gradient of the output.\"\"\"

    def forward(self, grad_output, *inputs):
        with torch.enable_grad():
            inputs = [x.detach().requires_grad_() if x.is_floating_point() else x for x in inputs]
            output = super().forward(*inputs)
            leaves = [x for x in inputs if x.requires_grad] + [p for p in self.parameters() if p.requires_grad]
            gradients = torch.autograd.grad(output, leaves, grad_output, allow_unused=True)
            return tuple(gradient for gradient in gradients if gradient is not None)


def get_inputs():
    inputs = [x.detach() for x in draw_setting()]
    with torch.device("meta"):
        model = ForwardModel(**get_init_inputs()[1])
    output = model(*(x.to("meta") for x in inputs))
    return [torch.randn(output.shape, dtype=output.dtype), *inputs]
"""


def _renamed(text: str, backward: bool) -> str:
    """The module with its ``get_inputs`` (and, for gradients, its ``Model``) under the names that ours call."""
    new = {"get_inputs": "draw_setting"} | ({"Model": "ForwardModel"} if backward else {})
    lines = text.splitlines(keepends=True)
    tokens: list[Any] = list(tokenize.generate_tokens(io.StringIO(text).readline))
    for token in reversed(tokens):
        if token.type == tokenize.NAME and token.string in new:
            row, start = token.start[0] - 1, token.start[1]
            lines[row] = lines[row][:start] + new[token.string] + lines[row][token.end[1] :]
    return "".join(lines)
