"""FlashInfer-Bench's trace sets as tasks: a definition with one of its workloads each.

A trace set is a folder with ``definitions/**/*.json`` and ``workloads/**/*.jsonl``. A *definition* names axes, inputs,
outputs and a reference function ``run``; a *workload* gives sizes to the variable axes and says where each input comes
from: random numbers, a scalar, or a tensor of a safetensors file. A task's reference is a module whose ``forward``
calls ``run``; axes are its module-level constants.
"""

from __future__ import annotations

import base64
import keyword
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from drkernel.config import did_you_mean
from drkernel.task import Precision, Provenance, Task
from drkernel.tasks.errors import TaskError

MAX_EMBEDDED_BYTES = 1 << 20
"""Largest tensor of a workload that a task carries in its source."""
_FLOATS = ("float32", "float16", "bfloat16")
_DRAWN = {
    **{name: f"torch.randn({{shape}}, dtype=torch.{name})" for name in _FLOATS},
    **{f"float8_{name}": f"torch.randn({{shape}}).to(torch.float8_{name})" for name in ("e4m3fn", "e5m2")},
    **{name: f"torch.randint(0, 100, {{shape}}, dtype=torch.{name})" for name in ("int64", "int32", "int16", "int8")},
    "bool": "torch.randint(0, 2, {shape}, dtype=torch.bool)",
}
"""How a random input is drawn, by dtype."""
_PRECISIONS: dict[str, Precision] = {"float16": "fp16", "bfloat16": "bf16"}


class _Foreign(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", protected_namespaces=())


class Axis(_Foreign):
    """A dimension: fixed by the definition, or given by each workload."""

    type: Literal["const", "var", "expr"]
    value: int | None = None
    expression: str | None = None


class Tensor(_Foreign):
    """An input or output; ``shape`` None is a Python number."""

    shape: tuple[str, ...] | None
    dtype: str


class Definition(_Foreign):
    """The computation: its axes, inputs, outputs and reference."""

    name: str = Field(min_length=1)
    op_type: str = ""
    axes: dict[str, Axis]
    inputs: dict[str, Tensor]
    outputs: dict[str, Tensor]
    reference: str


class Source(_Foreign):
    """Where an input comes from."""

    type: Literal["random", "scalar", "safetensors"]
    value: bool | int | float | None = None
    path: str | None = None
    tensor_key: str | None = None


class Workload(_Foreign):
    """Sizes of the variable axes, and the inputs' sources."""

    uuid: str
    axes: dict[str, int]
    inputs: dict[str, Source]


class File(_Foreign):
    """A file of a solution."""

    path: str
    content: str


class Build(_Foreign):
    """How a solution is built and entered: ``FILE::FUNCTION``."""

    language: str
    entry_point: str


class Solution(_Foreign):
    """Somebody's answer to a definition."""

    name: str
    definition: str
    spec: Build
    sources: tuple[File, ...]


def candidate_of(text: str, where: str) -> str:
    """Return a candidate's source from a solution's JSON: its one file, with a ``ModelNew`` that calls its function.

    Raises :class:`TaskError` for a solution of several files, or in a language that Python does not launch.
    """
    solution = _read(Solution, text, where)
    file, _, function = solution.spec.entry_point.rpartition("::")
    if solution.spec.language.lower() not in ("triton", "python"):
        raise TaskError(f"{where}: a solution in {solution.spec.language} is not graded; Triton and Python are")
    if [source.path for source in solution.sources] != [file]:
        raise TaskError(f"{where}: a solution of one file is graded, and {file!r} is to be that file")
    if not function.isidentifier():
        raise TaskError(f"{where}: the entry point {solution.spec.entry_point!r} names no function")
    return f"""{solution.sources[0].content.rstrip()}


import torch


class ModelNew(torch.nn.Module):
    def forward(self, *inputs):
        out = {function}(*inputs)
        if isinstance(out, dict):
            out = tuple(out.values())
        return out[0] if isinstance(out, (tuple, list)) and len(out) == 1 else out
"""


def load_flashinfer(named: Path, precision: Precision | None) -> Iterator[Task]:
    """Yield the tasks of ``DIR``, of ``DIR/DEFINITION``, or the one of ``DIR/DEFINITION/UUID`` (its start is enough).

    A workload that cannot be carried (a tensor over 1 MiB, a dtype of no PyTorch CPU tensor) becomes a task whose
    inputs raise the reason, so that whoever grades it reports it beside the others. Raises :class:`TaskError` for
    files that are not of the format, and for names that are not there.
    """
    root, wanted, uuid = _parts(named)
    files = {path.stem: path for path in sorted((root / "definitions").rglob("*.json"))}
    if wanted is not None and wanted not in files:
        raise TaskError(f"{root} has no definition {wanted!r}{did_you_mean(wanted, list(files))}")
    if not files:
        raise TaskError(f"{root}/definitions holds no .json file")
    found = False
    for name, path in files.items():
        if wanted in (None, name):
            definition = _read(Definition, path.read_text(encoding="utf-8", errors="replace"), str(path))
            for where, workload in _workloads(root, name, definition):
                if uuid is None or workload.uuid.startswith(uuid):
                    found = True
                    yield _task(root, definition, workload, precision, where)
    if not found:
        raise TaskError(f"{named} names no workload; `drkernel tasks list flashinfer:{root}` shows all")


def _parts(named: Path) -> tuple[Path, str | None, str | None]:
    """The trace set's folder, a definition's name and the start of a workload's id, as far as they are given."""
    for depth, root in enumerate((named, named.parent, named.parent.parent)):
        if (root / "definitions").is_dir():
            rest = [*named.parts[len(root.parts) :], None, None]
            return root, rest[0], rest[1] if depth == 2 else None
    raise TaskError(f"{named} is no FlashInfer-Bench trace set: there is no folder 'definitions' in it")


def _workloads(root: Path, name: str, definition: Definition) -> Iterator[tuple[str, Workload]]:
    files = sorted((root / "workloads").rglob(f"{name}.jsonl"))
    for path in files:
        for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1):
            if line.strip():
                where = f"{path}:{number}"
                yield where, _read(_Line, line, where).workload
    if not files and not [axis for axis, given in definition.axes.items() if given.type == "var"]:
        inputs = {each: Source(type="random") for each in definition.inputs}
        yield str(root), Workload(uuid="fixed", axes={}, inputs=inputs)


class _Line(_Foreign):
    workload: Workload


_Model = TypeVar("_Model", bound=BaseModel)


def _read(kind: type[_Model], text: str, where: str) -> _Model:
    try:
        return kind.model_validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = ".".join(str(part) for part in first["loc"]) or "(file)"
        raise TaskError(f"{where}: {kind.__name__.strip('_').lower()}, field {field}: {first['msg']}") from error


def _task(root: Path, definition: Definition, workload: Workload, precision: Precision | None, where: str) -> Task:
    sizes, shown = _sizes(definition, workload, where), f"flashinfer/{definition.name}/{workload.uuid[:8]}"
    names = [*definition.axes, *definition.inputs]
    if wrong := [name for name in names if not name.isidentifier() or keyword.iskeyword(name)]:
        raise TaskError(f"{where}: {wrong[0]!r} is no Python name")
    try:
        inputs = _inputs(root, definition, workload)
        body = "return [\n" + "".join(f"        {text},\n" for text in inputs) + "    ]"
    except TaskError as error:
        body = f"raise ValueError({str(error)!r})"
    derived = {name: axis.expression for name, axis in definition.axes.items() if axis.type == "expr"}
    constants = "".join(f"{name} = {size}\n" for name, size in [*sizes.items(), *derived.items()])
    fixed = tuple(name for name, source in workload.inputs.items() if source.type == "safetensors")
    if fixed:  # indices: numbers of another distribution would point elsewhere
        constants += f"FIXED_INPUTS = {fixed!r}\n"
    arguments = ", ".join(definition.inputs)
    call = ", ".join(f"{name}={name}" for name in definition.inputs)
    outputs = ", ".join(f"out[{name!r}]" for name in definition.outputs)
    reference = f"""import base64
import zlib

import torch

{definition.reference.strip()}


{constants}

class Model(torch.nn.Module):
    def forward(self, {arguments}):
        out = run({call})
        if isinstance(out, dict):
            out = [{outputs}]
        if isinstance(out, list):
            out = tuple(out)
        return out[0] if isinstance(out, tuple) and len(out) == 1 else out


def get_inputs():
    {body}


def get_init_inputs():
    return []
"""
    return Task(
        id=shown,
        level=0,
        reference=reference if fixed else reference.replace("import base64\nimport zlib\n\n", "", 1),
        precision=precision or _precision(definition),
        tags=(definition.op_type,) if definition.op_type else (),
        provenance=Provenance(source="flashinfer", path=where, license=None),
    )


def _sizes(definition: Definition, workload: Workload, where: str) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for name, axis in definition.axes.items():
        if axis.type == "expr" and axis.expression:
            continue
        size = axis.value if axis.type == "const" else workload.axes.get(name)
        if size is None:
            raise TaskError(f"{where}: nothing says how long the axis {name!r} is")
        sizes[name] = size
    for each, tensor in definition.inputs.items():
        if unknown := [axis for axis in tensor.shape or () if axis not in definition.axes]:
            raise TaskError(f"{where}: the shape of {each!r} has an axis {unknown[0]!r} that is not among the axes")
    return sizes


def _precision(definition: Definition) -> Precision:
    """The narrowest floating-point type of an input or output."""
    types = {tensor.dtype for tensor in (*definition.inputs.values(), *definition.outputs.values())}
    return next((_PRECISIONS[name] for name in ("bfloat16", "float16") if name in types), "fp32")


def _inputs(root: Path, definition: Definition, workload: Workload) -> list[str]:
    """Python expressions of the inputs, in the definition's order. Raises :class:`TaskError` for what has none."""
    return [
        _input(root, name, tensor, workload.inputs.get(name, Source(type="random")))
        for name, tensor in definition.inputs.items()
    ]


def _input(root: Path, name: str, tensor: Tensor, source: Source) -> str:
    if source.type == "scalar" or tensor.shape is None:
        if source.value is None:
            raise TaskError(f"the workload gives no value for the scalar {name!r}")
        return repr(source.value)
    if source.type == "safetensors":
        return _embedded(root, name, source)
    if tensor.dtype not in _DRAWN:
        raise TaskError(f"input {name!r}: no random tensor of dtype {tensor.dtype} is drawn here")
    shape = ", ".join(tensor.shape)
    return _DRAWN[tensor.dtype].format(shape=f"({shape}{',' if len(tensor.shape) == 1 else ''})")


def _embedded(root: Path, name: str, source: Source) -> str:
    """A tensor of a safetensors file as text: such inputs are indices, which no random numbers can stand for."""
    if source.path is None or source.tensor_key is None:
        raise TaskError(f"input {name!r}: a safetensors source needs path and tensor_key")
    try:
        import torch
        from safetensors import SafetensorError, safe_open
    except ImportError as error:
        raise TaskError(f"input {name!r}: safetensors files need pip install 'drkernel[data]'") from error
    path = root / source.path  # an absolute path stays what it is
    try:
        with safe_open(path, framework="pt") as file:
            tensor = file.get_tensor(source.tensor_key).contiguous()
    except OSError as error:
        raise TaskError(f"input {name!r}: cannot read {path}: {error.strerror or error}") from error
    except SafetensorError as error:
        raise TaskError(f"input {name!r}: {path}: {error}") from error
    if tensor.nbytes > MAX_EMBEDDED_BYTES:
        raise TaskError(
            f"input {name!r} holds {tensor.nbytes:,} bytes in {path}; a task carries {MAX_EMBEDDED_BYTES:,}"
        )
    data = tensor.reshape(-1).view(torch.uint8).numpy().tobytes()
    text = base64.b85encode(zlib.compress(data, 9)).decode()
    bytes_ = f"bytearray(zlib.decompress(base64.b85decode({text!r})))"
    return f"torch.frombuffer({bytes_}, dtype={tensor.dtype}).reshape({tuple(tensor.shape)!r})"
