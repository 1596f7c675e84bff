"""Loads tasks: the built-in suite, KernelBench as published, parquet, JSONL, files.

A *task spec* is one string: ``builtin``, ``builtin/level2``, ``builtin/level1/softmax``, ``kernelbench:DIR``,
``kernelbench:DIR/level1``, ``kernelbench:DIR/level1/23``, ``parquet:FILE[#ID]``, ``jsonl:FILE[#ID]``, ``file:PATH``,
or the path of a reference's file. Every error names the file, the row and the field.

Reads parquet files, with the extra ``drkernel[data]``.
"""

import ast
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import yaml
from pydantic import Field, TypeAdapter, ValidationError

from drkernel.config import Config, did_you_mean
from drkernel.task import Precision, Provenance, Task, TaskError

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


SPECS = "builtin[/levelN[/NAME]], kernelbench:DIR[/levelN[/NUMBER]], parquet:FILE[#ID], jsonl:FILE[#ID], file:PATH"
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
        return map(partial(_kernelbench_file, precision), _kernelbench_problem(directory))
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
    return map(partial(_kernelbench_file, precision), files)


def _kernelbench_file(precision: Precision, path: Path) -> Task:
    name = f"kernelbench/{path.parent.name}/{path.stem}"
    return _foreign(name, int(path.parent.name[5:]), path, precision, "kernelbench", "MIT")


def _level_folder(level: Path) -> Path:
    """The folder of a level; its path may leave out the repository's own ``KernelBench`` folder."""
    return level if level.is_dir() else level.parent / "KernelBench" / level.name


def _kernelbench_problem(named: Path) -> list[Path]:
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
    return found


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
    origin = Provenance(source=source, path=str(path), license=license)
    return _make(str(path), id=name, level=level, reference=_read(path), precision=precision, provenance=origin)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise TaskError(f"cannot read {path}: {error}") from error


def _jsonl(path: Path) -> Iterator[Task]:
    """Read one task per line as JSON; blank lines are skipped."""
    seen: set[str] = set()
    for number, line in enumerate(_read(path).splitlines(), 1):
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
        where = f"{path} row {number}"
        id, level, reference, license = read(where, row, number)
        origin = Provenance(source="parquet", path=f"{path}#{number}", license=license)
        yield _make(where, id=id, level=level, reference=reference, precision=precision, provenance=origin)


def _kernelbench_row(where: str, row: Mapping[str, Any], number: int) -> tuple[str, Any, str, str | None]:
    """Name, level, text and licence."""
    level = row.get("level")
    level = 0 if level is None else level
    return f"kernelbench/level{level}/{row['name']}", level, _text(where, "code", row["code"]), "MIT"


def _verl_row(where: str, row: Mapping[str, Any], number: int) -> tuple[str, Any, str, str | None]:
    """The same; the reference is ``reward_model.ground_truth`` (text, or a mapping that holds it), else in
    ``extra_info``."""
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
    return f"{row.get('data_source') or 'verl'}/{name}", level if isinstance(level, int) else 0, reference, None


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
