"""How a file of the corpus is read: a header, a line that says what it does, and a program or a change to one.

The header is of ``# name: value`` lines. With ``# base: NAME`` the program is that of another entry: an honest one,
which may have a base itself, or for a cheat another cheat. The file shows what differs: its task and root are those of
the base where it names no other, and so are tier and expectation where both are cheats, or both honest.

Imports of torch, triton and ``triton.language as tl`` are not written: a program without a base has what it names.
A change is of:

1. Lines, for a few in a long function. A comment of signed lines stands below the line that says what the file does:
   ``# - `` goes, ``# + `` comes, ``#   `` stays and says where. Those that go and stay must stand in the base in a row,
   and once; indentation counts only between them. An empty line ends such a comment. They are applied first.
2. Definitions. What has the same name in the file as in the base takes its place, with the comments above it; of a
   class, only the attributes and methods that the file has, and its head. What the base lacks is added: imports that
   begin the file after those that begin the base; the rest before whatever follows it in the file and has a name in
   the base, or else at the end of its class, or before the class that ends the base. Statements without a name
   (``for``, calls) are always new.
3. ``# without: name, Class.method`` in the header takes away what is defined under these names.

``python tests/kit/corpus_grading.py show NAME`` prints the whole program.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby, takewhile
from pathlib import Path

COMMON = {"torch": "import torch", "triton": "import triton", "tl": "import triton.language as tl"}
"""Imports that files of the corpus leave out, by the name that asks for them."""
NAMES = ("task", "hacks", "twin of", "tier", "root", "expect", "new", "device", "checked", "base", "without")
"""What a header may say."""
_HEADER = re.compile(r"# ([a-z ]+): (.*)")
_SIGNED = re.compile(r"# ([-+ ]) (.*)")
_LATE = re.compile(r"# ?[-+]( |$)")


@dataclass(frozen=True)
class Written:
    """A file of the corpus as a whole program."""

    header: dict[str, str]
    what: str
    program: list[str]
    """Lines below the header and ``what``."""

    @property
    def source(self) -> str:
        """The program with its header, which says nothing of a base."""
        said = [f"# {name}: {value}" for name, value in self.header.items() if name not in ("base", "without")]
        return "\n".join([*said, f"# {self.what}", *self.program]) + "\n"


def read_written(path: Path, dependents: Sequence[str] = ()) -> Written:
    """Read a file. Raises ``ValueError`` when it is malformed; ``dependents`` are entries whose base it is."""
    lines = path.read_text(encoding="utf-8").splitlines()
    header: dict[str, str] = {}
    for line in lines:
        match = _HEADER.fullmatch(line)
        if match is None:
            break
        if match[1] not in NAMES or match[1] in header:
            raise ValueError(f"{path}: {match[1]!r} stands in the header twice, or is none of {', '.join(NAMES)}")
        header[match[1]] = match[2]
    what, *own = lines[len(header) :] or [""]
    if not what.startswith("# "):
        raise ValueError(f"{path}: a comment of one line below the header must say what the file does")
    if "base" in header:
        place = _base(path, header["base"], dependents)
        base = read_written(place, (*dependents, path.stem))
        try:
            own = changed(base.program, own, header.get("without", ""))
        except (ValueError, SyntaxError) as error:
            raise ValueError(f"{path}: {error}") from None
        names = ("task", "root", "tier", "expect") if place.parent == path.parent else ("task", "root")
        header = {name: base.header[name] for name in names if name in base.header} | header
    elif "without" in header:
        raise ValueError(f"{path}: `without` goes with a base")
    else:
        own = with_imports(own)
    return Written(header, what.removeprefix("# "), own)


def with_imports(lines: Sequence[str]) -> list[str]:
    """A program under those of the common imports that it names and has not."""
    named = set(re.findall(r"\b(\w+)\.", "\n".join(lines)))
    missing = [line for name, line in COMMON.items() if name in named and line not in lines]
    gap = ["", ""] if missing and not lines[0].startswith(("import ", "from ")) else []
    return [*missing, *gap, *lines]


def module(
    forward: str | Sequence[str], inputs: dict[str, str], *, constants: Sequence[str] = (),
    init: dict[str, str] | None = None, layers: dict[str, str] | None = None,
) -> str:  # fmt: skip
    """The source of a reference: lines of ``forward``, the last of which is returned, over ``inputs``, drawn as they
    say. ``init``: parameters of the constructor, and what it is given; ``layers``: attributes that it makes."""
    *lines, returned = [forward] if isinstance(forward, str) else forward
    made = "".join(f"        self.{name} = {value}\n" for name, value in (layers or {}).items())
    text = "".join(f"{line}\n" for line in constants) + "\n\n" * bool(constants) + "class Model(torch.nn.Module):\n"
    if made:
        text += f"    def __init__({', '.join(['self', *(init or {})])}):\n        super().__init__()\n{made}\n"
    text += f"    def forward({', '.join(['self', *inputs])}):\n" + "".join(f"        {line}\n" for line in lines)
    text += f"        return {returned}\n\n\ndef get_inputs():\n    return [{', '.join(inputs.values())}]"
    given = "" if init is None else f"\n\n\ndef get_init_inputs():\n    return [{', '.join(init.values())}]"
    return "\n".join(with_imports(f"{text}{given}".splitlines())) + "\n"


def _base(path: Path, name: str, dependents: Sequence[str]) -> Path:
    folders = ["honest"] if path.parent.name == "honest" else ["honest", "cheats"]
    found = [base for folder in folders if (base := path.parents[1] / folder / f"{name}.py").exists()]
    if not found:
        raise ValueError(f"{path}: nothing in {' and '.join(folders)} is called {name!r}")
    if name in (*dependents, path.stem):
        raise ValueError(f"{path}: bases in a circle: {' -> '.join([*dependents, path.stem, name])}")
    return found[0]


def changed(base: Sequence[str], change: Sequence[str], without: str = "") -> list[str]:
    """The lines of ``base`` after a change, less what ``without`` names. Raises ``ValueError`` for one that misfits."""
    signed = list(takewhile(lambda line: not line or _SIGNED.fullmatch(line), change))
    for is_comment, comment in groupby(signed, bool):
        base = _edited(base, list(comment)) if is_comment else base
    below = change[len(signed) :]
    if late := [line for line in below if _LATE.match(line)]:
        raise ValueError(f"a signed line stands above the definitions, and has a text: {late[0]}")
    pieces = _merged(_pieces(base), _pieces(below))
    for name in filter(None, without.split(", ")):
        pieces = _less(pieces, name.split("."))
    return _joined(pieces, "\n\n\n").splitlines()


def _edited(lines: Sequence[str], comment: Sequence[str]) -> list[str]:
    """Lines after one comment of signed ones."""
    old = [line[4:] for line in comment if line[2] != "+"]
    new = [line[4:] for line in comment if line[2] != "-"]
    if not old:
        raise ValueError(f"nothing says where this comes: {comment[0]}")
    places = []
    for at in range(len(lines) - len(old) + 1):
        margin = " " * (_indentation(lines[at]) - _indentation(old[0]))
        if [(margin + line).rstrip() for line in old] == [line.rstrip() for line in lines[at : at + len(old)]]:
            places.append((at, margin))
    if len(places) != 1:
        raise ValueError(f"stands {len(places)} times in the base, not once: {' / '.join(old)}")
    at, margin = places[0]
    return [*lines[:at], *((margin + line).rstrip() for line in new), *lines[at + len(old) :]]


def _indentation(line: str) -> int:
    return len(line) - len(line.lstrip())


@dataclass(frozen=True)
class _Piece:
    """A statement with the comments above it; of a class, ``text`` is the head and ``members`` are the rest."""

    node: ast.stmt
    text: str
    members: tuple[_Piece, ...] = ()

    @property
    def name(self) -> str:
        """What it defines; '' when it is no definition."""
        if isinstance(self.node, ast.FunctionDef | ast.ClassDef):
            return self.node.name
        if isinstance(self.node, ast.Import | ast.ImportFrom):
            return ", ".join(alias.asname or alias.name for alias in self.node.names)
        return ", ".join(map(ast.unparse, self.node.targets)) if isinstance(self.node, ast.Assign) else ""


def _pieces(lines: Sequence[str]) -> list[_Piece]:
    body = ast.parse("\n".join(lines)).body
    if not body and any(lines):
        raise ValueError(f"neither a signed line nor a definition: {next(filter(None, lines))}")
    return _of(body, lines, 0, len(lines))


def _of(body: Sequence[ast.stmt], lines: Sequence[str], start: int, stop: int) -> list[_Piece]:
    """The statements of a body that takes the lines from ``start`` to before ``stop``."""
    found = []
    for node, after in zip(body, [*body[1:], None], strict=False):
        end = stop if after is None else node.end_lineno or 0
        head, members = end, []
        if isinstance(node, ast.ClassDef) and node.body[0].lineno > node.lineno:
            head = next(at for at in range(node.lineno, end) if lines[at - 1].rstrip().endswith(":"))
            members = _of(node.body, lines, head, end)
        found.append(_Piece(node, "\n".join(lines[start:head]).strip("\n"), tuple(members)))
        start = end
    return found


def _merged(base: Sequence[_Piece], change: Sequence[_Piece]) -> list[_Piece]:
    """The base with what the change replaces in its place, and what it adds before its next neighbour there."""
    pieces, imports, new = list(base), list[_Piece](), list[_Piece]()
    leading = len(list(takewhile(_is_import, change)))
    for index, piece in enumerate(change):
        names = [one.name for one in pieces]
        if piece.name and piece.name in names:
            at = names.index(piece.name)
            members = _merged(pieces[at].members, piece.members) if piece.members else []
            pieces[at : at + 1] = [*new, replace(piece, members=tuple(members))]
            new = []
        else:
            (imports if index < leading else new).append(piece)
    end = len(pieces) - (bool(pieces) and isinstance(pieces[-1].node, ast.ClassDef))
    pieces[end:end] = new
    top = len(list(takewhile(_is_import, pieces)))
    return [*pieces[:top], *imports, *pieces[top:]]


def _is_import(piece: _Piece) -> bool:
    return isinstance(piece.node, ast.Import | ast.ImportFrom)


def _less(pieces: Sequence[_Piece], path: Sequence[str]) -> list[_Piece]:
    """Without the definition at a path such as ``['Class', 'method']``."""
    name, *rest = path
    names = [piece.name for piece in pieces]
    if name not in names:
        raise ValueError(f"`without` names {name!r}, which is not defined")
    at = names.index(name)
    kept = [replace(pieces[at], members=tuple(_less(pieces[at].members, rest)))] if rest else []
    return [*pieces[:at], *kept, *pieces[at + 1 :]]


def _joined(pieces: Sequence[_Piece], gap: str) -> str:
    """The text of a body whose functions and classes stand apart by ``gap``."""
    text = ""
    for before, piece in zip([None, *pieces], pieces, strict=False):
        if before is not None:
            defines = any(isinstance(one.node, ast.FunctionDef | ast.ClassDef) for one in (before, piece))
            text += gap if defines else "\n\n" if _is_import(before) and not _is_import(piece) else "\n"
        text += "\n".join(filter(None, [piece.text, _joined(piece.members, "\n\n")]))
    return text
