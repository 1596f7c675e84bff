"""Loads tasks: the built-in suite, KernelBench, FlashInfer-Bench and robust-kbench as published, parquet, JSONL, files.

A *task spec* is one string: ``builtin``, ``builtin/level2``, ``builtin/level1/softmax``, ``kernelbench:DIR``,
``kernelbench:DIR/level1``, ``kernelbench:DIR/level1/23``, ``flashinfer:DIR[/DEFINITION[/UUID]]``,
``robust-kbench:DIR[/TASK[/SETTING]]``, ``parquet:FILE[#ID]``, ``jsonl:FILE[#ID]``, ``file:PATH``, or the path of a
reference's file. Every error names the file, the row and the field.

Reads parquet files, with the extra ``drkernel[data]``.

robust-kbench's task folders as tasks: a module with one of its settings each.

A task's folder holds ``func_forward.py`` (``Model``, a ``get_inputs`` with keyword arguments) and
``config_forward.json``, and for some tasks the same with ``backward``. A config lists arguments of the constructor
(``init``), of ``get_inputs`` (``input``) and of both (``shared``), twice: under ``single_`` the settings that are
timed, under ``multi_`` those that an answer is to be right for besides. Every combination is a task. Sizes become
module-level constants, so that large settings are checked thin and timed as they are.

Of a backward folder the reference returns the gradients of the floating-point inputs, then of the parameters, for a
gradient of the output, which is its first argument.
"""

from __future__ import annotations

import ast
import io
import itertools
import json
import keyword
import re
import tokenize
from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from drkernel.config import did_you_mean
from drkernel.task import Precision, Provenance, Task
from drkernel.tasks.builtin import builtin_task, builtin_tasks
from drkernel.tasks.errors import TaskError
from drkernel.tasks.flashinfer import load_flashinfer


def read_rows(path: Path, error: type[ValueError]) -> tuple[set[str], list[dict[str, Any]]]:
    """Return the names of a file's columns, and its rows.

    Raises ``error`` when the file cannot be read or pyarrow is not installed.
    """
    try:
        import pyarrow.parquet as parquet
    except ImportError as missing:
        raise error("reading parquet needs pyarrow: pip install 'drkernel[data]'") from missing
    try:
        table = parquet.read_table(path)
    except (OSError, ValueError) as unreadable:
        raise error(f"cannot read {path}: {unreadable}") from unreadable
    return set(table.column_names), table.to_pylist()


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


SPECS = (
    "builtin[/levelN[/NAME]], kernelbench:DIR[/levelN[/NUMBER]], flashinfer:DIR[/DEFINITION[/UUID]], "
    "robust-kbench:DIR[/TASK[/SETTING]], parquet:FILE[#ID], jsonl:FILE[#ID], file:PATH"
)
_REFERENCE_KEYS = ("reference", "reference_code", "pytorch_code", "code")
_NAME_KEYS = ("uuid", "name", "problem_id", "index")


def load_tasks(spec: str, precision: Precision | None = None) -> list[Task]:
    """Return every task that a spec names, in a fixed order.

    ``precision`` declares the precision of foreign tasks whose source does not state it (default fp32); it is an error
    for specs that carry their own. Raises :class:`TaskError` naming the file, row and field.
    """
    path = Path(spec)
    if path.is_file():
        return [_foreign(_name_of(path), 0, path, precision or "fp32", "file", None)]
    kind, separator, rest = spec.partition(":")
    if re.fullmatch(r"(builtin/)?level\d+/.*", spec):
        _refuse_precision(spec, precision)
        return [builtin_task(spec)]
    if kind.split("/")[0] == "builtin" and not separator:
        _refuse_precision(spec, precision)
        return _builtin(spec)
    if not separator or not rest:
        raise TaskError(f"cannot read the task spec {spec!r}: it is neither a file nor one of: {SPECS}")
    if kind == "kernelbench":
        return list(_kernelbench(Path(rest), precision or "fp32"))
    if kind == "flashinfer":
        return list(load_flashinfer(Path(rest), precision))
    if kind == "robust-kbench":
        return list(load_robust_kbench(Path(rest), precision or "fp32"))
    if kind == "parquet":
        path, id = _file_and_id(rest)
        return _only(path, id, _parquet(path, precision or "fp32"))
    if kind == "jsonl":
        _refuse_precision(spec, precision)
        path, id = _file_and_id(rest)
        return _only(path, id, _jsonl(path))
    if kind == "file":
        return list(_file(Path(rest), precision or "fp32"))
    raise TaskError(f"unknown kind of task spec {kind!r}; it should be one of: {SPECS}")


def load_task(reference: str, precision: Precision | None = None) -> Task:
    """Return the one task that a spec names.

    ``precision`` overrides the declared one. Raises :class:`TaskError`, which says what there is when the spec names
    several tasks or none.
    """
    found = load_tasks(reference)
    if len(found) > 1:
        some = ", ".join(task.id for task in found[:3])
        raise TaskError(f"{reference} names {len(found)} tasks ({some}, ...); name one of them")
    return found[0] if precision is None else found[0].model_copy(update={"precision": precision})


def _name_of(path: Path) -> str:
    """The name of a reference's file; of ``reference.py`` that of its folder, which says more."""
    return path.stem if path.stem != "reference" else path.resolve().parent.name


def _file_and_id(rest: str) -> tuple[Path, str | None]:
    """Split ``FILE#ID``; a file whose name holds ``#`` is taken whole."""
    path, separator, id = rest.rpartition("#")
    return (Path(path), id) if separator and not Path(rest).exists() else (Path(rest), None)


def _only(path: Path, id: str | None, tasks: Iterable[Task]) -> list[Task]:
    """All tasks of a file, or the one of this id, of which the last part is enough."""
    found = list(tasks)
    if id is None:
        return found
    chosen = [task for task in found if task.id == id] or [task for task in found if task.id.endswith(f"/{id}")]
    if not chosen:
        near = get_close_matches(id, [task.id for task in found], 3, 0.3)
        raise TaskError(f"{path} holds no task {id!r}; near to it: {', '.join(near) or 'none'}")
    return chosen


def save_tasks(tasks: Iterable[Task], path: str | Path) -> None:
    """Write tasks as JSONL, one :class:`Task` per line; ``jsonl:FILE`` reads back equal tasks."""
    Path(path).write_text("".join(task.model_dump_json() + "\n" for task in tasks), encoding="utf-8")


def _refuse_precision(spec: str, precision: Precision | None) -> None:
    if precision is not None:
        raise TaskError(f"tasks of {spec!r} declare their own precision; leave --precision out")


def _builtin(spec: str) -> list[Task]:
    chosen = [task for task in builtin_tasks() if task.id == spec or task.id.startswith(spec.rstrip("/") + "/")]
    if not chosen:
        near = did_you_mean(spec, [task.id for task in builtin_tasks()])
        raise TaskError(f"the built-in suite has nothing under {spec!r}; `drkernel tasks list builtin` shows all{near}")
    return chosen


def _kernelbench(directory: Path, precision: Precision) -> Iterator[Task]:
    """The published layout: ``levelN/NUMBER_Name.py``.

    DIR may be the repository, its KernelBench folder, a level, or one problem of a level by number or name.
    """
    if re.fullmatch(r"level\d+", directory.parent.name) and re.match(r"\d+", directory.name):
        yield from _kernelbench_problem(directory, precision)
        return
    if re.fullmatch(r"level\d+", directory.name):
        directory = _level_folder(directory)
    if not directory.is_dir():
        raise TaskError(
            f"{directory} is not a directory; kernelbench: wants KernelBench's folder of level1, level2, ..."
        )
    if (directory / "KernelBench").is_dir():
        directory = directory / "KernelBench"
    levels = sorted(path for path in directory.glob("level*") if path.is_dir())
    if not levels and re.fullmatch(r"level\d+", directory.name):
        levels = [directory]
    files = [path for level in levels for path in sorted(level.glob("*.py"), key=_natural)]
    if not files:
        raise TaskError(f"{directory} holds no levelN/*.py; give KernelBench's repository, its folder or one level")
    for path in files:
        name = f"kernelbench/{path.parent.name}/{path.stem}"
        yield _foreign(name, int(path.parent.name[5:]), path, precision, "kernelbench", "MIT")


def _level_folder(level: Path) -> Path:
    """The folder of a level; its path may leave out the repository's own ``KernelBench`` folder."""
    return level if level.is_dir() else level.parent / "KernelBench" / level.name


def _kernelbench_problem(named: Path, precision: Precision) -> Iterator[Task]:
    """``DIR/levelN/NUMBER``, ``DIR/levelN/NUMBER_Name`` or the same with ``.py``."""
    level = _level_folder(named.parent)
    number = re.match(r"\d+", named.name)
    assert number is not None, "the caller has looked"
    found = [
        path for path in level.glob(f"{number.group()}_*.py") if named.name in (number.group(), path.stem, path.name)
    ]
    if not level.is_dir():
        raise TaskError(f"there is no folder {named.parent}, nor {level}")
    if not found:
        raise TaskError(f"{level} holds no problem {named.name}; `drkernel tasks list kernelbench:DIR` shows all")
    for path in found:
        yield _foreign(
            f"kernelbench/{level.name}/{path.stem}", int(level.name[5:]), path, precision, "kernelbench", "MIT"
        )


def _natural(path: Path) -> tuple[int, str]:
    number = re.match(r"\d+", path.name)
    return (int(number.group()) if number else 10**9, path.name)


def _file(path: Path, precision: Precision) -> Iterator[Task]:
    """One Python source, or every ``.py`` of a directory."""
    files = sorted(path.glob("*.py")) if path.is_dir() else [path]
    if not files:
        raise TaskError(f"{path} holds no .py file")
    for file in files:
        name = file.stem if path.is_dir() else _name_of(file)
        yield _foreign(f"file/{name}", 0, file, precision, "file", None)


def _foreign(name: str, level: int, path: Path, precision: Precision, source: str, license: str | None) -> Task:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise TaskError(f"cannot read {path}: {error}") from error
    provenance = Provenance(source=source, path=str(path), license=license)
    return _make(str(path), id=name, level=level, reference=text, precision=precision, provenance=provenance)


def _jsonl(path: Path) -> Iterator[Task]:
    """Read one task per line as JSON; blank lines are skipped."""
    seen: set[str] = set()
    for number, line in enumerate(_lines(path), 1):
        if not line.strip():
            continue
        where = f"{path}:{number}"
        try:
            fields = json.loads(line)
        except json.JSONDecodeError as error:
            raise TaskError(f"{where}: not valid JSON: {error.msg} at column {error.colno}") from error
        except RecursionError as error:
            raise TaskError(f"{where}: nested too deeply for a task") from error
        if not isinstance(fields, dict):
            raise TaskError(f"{where}: a task must be a JSON object, found {type(fields).__name__}")
        task = _make(where, **fields)
        if task.id in seen:
            raise TaskError(f"{where}: field id: {task.id!r} was used on an earlier line")
        seen.add(task.id)
        yield task


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise TaskError(f"cannot read {path}: {error}") from error


def _parquet(path: Path, precision: Precision) -> Iterator[Task]:
    """Rows with KernelBench's columns (code, level, name, problem_id) or verl's (reward_model, extra_info, ...)."""
    columns, rows = read_rows(path, TaskError)
    if {"code", "name"} <= columns:
        read = _kernelbench_row
    elif "reward_model" in columns:
        read = _verl_row
    else:
        raise TaskError(
            f"{path}: columns {', '.join(sorted(columns))} are neither KernelBench's (code, level, name, problem_id) "
            "nor verl's (data_source, prompt, reward_model, extra_info)"
        )
    for number, row in enumerate(rows):
        yield read(
            f"{path} row {number}", row, number, precision, Provenance(source="parquet", path=f"{path}#{number}")
        )


def _kernelbench_row(where: str, row: Mapping[str, Any], number: int, precision: Precision, origin: Provenance) -> Task:
    level = row.get("level")
    level = 0 if level is None else level
    reference = _text(where, "code", row["code"])
    return _make(
        where,
        id=f"kernelbench/level{level}/{row['name']}",
        level=level,
        reference=reference,
        precision=precision,
        provenance=origin.model_copy(update={"license": "MIT"}),
    )


def _verl_row(where: str, row: Mapping[str, Any], number: int, precision: Precision, origin: Provenance) -> Task:
    """The reference is ``reward_model.ground_truth`` (text, or a mapping that holds it), else in ``extra_info``."""
    reward, extra = (_mapping(where, key, row.get(key)) for key in ("reward_model", "extra_info"))
    truth = reward.get("ground_truth")
    if isinstance(truth, str) and truth.lstrip().startswith("{"):
        truth = _mapping(where, "reward_model.ground_truth", truth)
    if not isinstance(truth, str):
        holders = [truth or {}, extra]
        truth = next((h[key] for h in holders for key in _REFERENCE_KEYS if isinstance(h.get(key), str)), None)
    reference = _text(where, "reward_model.ground_truth", truth)
    name = next((extra[key] for key in _NAME_KEYS if extra.get(key) not in (None, "")), number)
    level = extra.get("level")
    return _make(
        where,
        id=f"{row.get('data_source') or 'verl'}/{name}",
        level=level if isinstance(level, int) else 0,
        reference=reference,
        precision=precision,
        provenance=origin,
    )


def _mapping(where: str, field: str, value: Any) -> dict[str, Any]:
    """A struct column as a dict; some writers store it as JSON text."""
    if value is None:
        return {}
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except json.JSONDecodeError as error:
            raise TaskError(f"{where}: field {field}: neither a struct nor JSON text: {error.msg}") from error
    if not isinstance(value, dict):
        raise TaskError(f"{where}: field {field}: expected a mapping, found {type(value).__name__}")
    return value


def _text(where: str, field: str, value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        found = "nothing" if value is None or value == "" else type(value).__name__
        raise TaskError(f"{where}: field {field}: expected the reference's source text, found {found}")
    return value


def _make(where: str, **fields: Any) -> Task:
    """Build a task and parse its source; errors carry ``where`` and the field."""
    try:
        task = Task.model_validate(fields)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = ".".join(str(part) for part in first["loc"]) or "(task)"
        raise TaskError(f"{where}: field {field}: {first['msg']}") from error
    try:
        ast.parse(task.reference)
    except SyntaxError as error:
        raise TaskError(f"{where}: field reference: line {error.lineno} is not valid Python: {error.msg}") from error
    except (ValueError, RecursionError, MemoryError) as error:  # lone surrogates; more nesting than the parser bears
        why = f"{type(error).__name__} {error}".rstrip()
        raise TaskError(f"{where}: field reference: Python cannot parse it ({why})") from error
    return task
