"""Reader of TTIR's textual form (what ``str(module)`` prints), one operation per line.

The text may come from hostile code: malformed input raises :class:`TTIRError`, nesting is bounded, nothing is
evaluated.

Pieces of TTIR's text: lists, attributes, strings.
"""

import re
from collections.abc import Iterator

from ttir_executor.ttir.ir import (
    FLOAT_BITS,
    BasicBlock,
    Function,
    Op,
    Region,
    TTIRError,
    Type,
    UnsupportedTTIR,
    Value,
)
from ttir_executor.ttir.verify import MAX_OPS, verify

_DOT_SCALED = re.compile(r"^ *%\S+( scale %\S+)?, %\S+( scale %\S+)?, %\S+ lhs = (\w+) rhs = (\w+)")


def places_outside(text: str, separator: str) -> Iterator[int]:
    """Yield the places of ``separator`` outside brackets and quotes."""
    depth, quoted = 0, False
    for k, ch in enumerate(text):
        if ch == '"':
            quoted = not quoted
        elif quoted:
            continue
        elif ch in "(<[{":
            depth += 1
        elif ch in ")]}" or (ch == ">" and text[k - 1] != "-"):
            depth -= 1
        elif ch == separator and depth == 0:
            yield k


def split_top(text: str) -> list[str]:
    """Split at commas outside brackets and quotes; empty text gives no parts."""
    parts, start = [], 0
    for k in places_outside(text, ","):
        parts.append(text[start:k].strip())
        start = k + 1
    tail = text[start:].strip()
    return [*parts, tail] if tail or parts else []


def scaled(head: str) -> dict[str, str]:
    """Of ``%a scale %s, %b scale %t, %c lhs = e4m3 rhs = e2m1 {fastMath = false, rhs_k_pack = false}``."""
    match = _DOT_SCALED.match(head)
    if match is None:
        raise TTIRError(f"malformed tt.dot_scaled {head[:160]!r}")
    first, second, lhs, rhs = match.groups()
    packed = {f"{side}_k_pack": str(f"{side}_k_pack = false" not in head).lower() for side in ("lhs", "rhs")}
    scaled = {"lhs_scaled": str(first is not None).lower(), "rhs_scaled": str(second is not None).lower()}
    return {"lhs": lhs, "rhs": rhs, **packed, **scaled}


def unescape(text: str) -> str:
    """MLIR's string escapes: two hexadecimal digits, or the character itself."""
    return re.sub(
        r"\\([0-9A-Fa-f]{2}|.)", lambda m: chr(int(m.group(1), 16)) if len(m.group(1)) == 2 else m.group(1), text
    )


def unparen(text: str) -> str:
    return text[1:-1] if text.startswith("(") and text.endswith(")") else text


def attributes(head: str) -> dict[str, str]:
    """``{key = value : type, ...}`` and bare ``key = value`` as strings, plus leading keywords under their position."""
    attrs: dict[str, str] = {}
    words = []
    for part in _attribute_parts(head):
        key, eq, value = part.partition(" = ")
        if eq and re.fullmatch(r"[A-Za-z_.]+", key.strip()):
            attrs[key.strip()] = re.sub(r" : [\w<>]+$", "", value.strip())
        elif re.fullmatch(r"[a-z_0-9]+", part.strip()):
            words.append(part.strip())
    for k, word in enumerate(words):
        attrs[f"word{k}"] = word
    return attrs


def _attribute_parts(head: str) -> Iterator[str]:
    text = re.sub(r"<\{", "{", head).replace("}>", "}")
    for chunk in re.findall(r"\{([^{}]*)\}", text):
        yield from split_top(chunk)
    bare = re.sub(r"\{[^{}]*\}", "", text)
    yield from split_top(bare)


_MAX_DEPTH = 60
_MAX_LINE = 1 << 17
_NAME = re.compile(r"%[A-Za-z0-9_$.\-]+(?:#\d+)?")
_RESULTS = re.compile(r"^((?:%[A-Za-z0-9_$.\-]+(?::\d+)?)(?:, %[A-Za-z0-9_$.\-]+(?::\d+)?)*) = ")
_OP_NAME = re.compile(r'^"?([a-z_]+\.[a-z_0-9.]+)"?')
_LOC_ALIAS = re.compile(r"^(#loc\d*) = loc\((.*)\)$")
_FILE_LINE = re.compile(r'"([^"]*)":(\d+)')
_MAX_CALLS = 16
"""calls inside each other of which the places are kept"""
_TRAILING_LOC = re.compile(r" loc\((#loc\d*|unknown)\)$")
_SCALARS = {"i1", "i8", "i16", "i32", "i64", "index", *FLOAT_BITS}


def parse_type(text: str) -> Type:
    """``tensor<4x!tt.ptr<f32>>``, ``f32``, ``!tt.ptr<f32>`` ... as a :class:`Type`."""
    text = text.strip()
    if text in _SCALARS:
        return Type(text)
    if text.startswith("!tt.ptr<") and text.endswith(">"):
        pointee = text[8:-1].split(",")[0].strip()
        return Type("ptr", None, pointee if pointee in _SCALARS else _nested_pointer(pointee))
    if text.startswith("tensor<") and text.endswith(">"):
        inner = text[7:-1]
        match = re.match(r"^((?:\d+x)+)", inner)
        if match is None:
            raise TTIRError(f"tensor type without a shape: {text!r}")
        shape = tuple(int(d) for d in match.group(1).split("x")[:-1])
        rest = inner[match.end() :].split(", #")[0]
        elem = parse_type(rest)
        if elem.shape is not None:
            raise TTIRError(f"nested tensor type {text!r}")
        return elem.with_shape(shape)
    raise UnsupportedTTIR(f"type {text!r}")


def _nested_pointer(text: str) -> str:
    if text.startswith("!tt.ptr<"):
        return "i64"
    raise UnsupportedTTIR(f"pointer to {text!r}")


def _find_type_colon(text: str) -> int:
    """Index of the last top-level " : ", or -1."""
    return max((k for k in places_outside(text, ":") if text[k - 1] == " "), default=-1)


_ASSEMBLY = re.compile(
    r'^ "((?:[^"\\]|\\.)*)" \{constraints = "((?:[^"\\]|\\.)*)", '
    r"packed_element = (\d+) : i32, pure = (true|false)\}(.*)$"
)


class _Reader:
    def __init__(self, text: str):
        self.lines: list[str] = []
        self.locs: dict[str, str] = {}
        for raw in text.splitlines():
            line = raw.strip()
            if len(line) > _MAX_LINE:
                raise TTIRError(f"a line of {len(line)} characters is over the limit of {_MAX_LINE}")
            alias = _LOC_ALIAS.match(line)
            if alias is not None:
                self.locs[alias.group(1)] = alias.group(2)
            elif line and not line.startswith("//"):
                self.lines.append(line)
        if len(self.lines) > MAX_OPS:
            raise TTIRError(f"{len(self.lines)} lines are over the limit of {MAX_OPS}")
        self.pos = 0
        self.functions = 0
        """inside operations, of several blocks each"""
        self.scopes: list[dict[str, Value]] = []
        self._resolved: dict[str, tuple[str, ...]] = {}
        self.made = 0

    # ---- small pieces

    def next(self) -> str:
        if self.pos >= len(self.lines):
            raise TTIRError("the text ends inside a region")
        line = self.lines[self.pos]
        self.pos += 1
        return line

    def lookup(self, name: str) -> Value:
        for scope in reversed(self.scopes):
            if name in scope:
                return scope[name]
            if name.endswith("#0") and name[:-2] in scope:
                return scope[name[:-2]]
        raise TTIRError(f"value {name} is used before it is defined")

    def places(self, alias: str) -> tuple[str, ...]:
        """``file:line`` of a location alias, then of the calls that led there."""
        if alias not in self._resolved:
            self._resolved[alias] = ()  # cycles end here
            body = self.locs.get(alias, "")
            direct = _FILE_LINE.search(body)
            if direct is not None:
                self._resolved[alias] = (f"{direct.group(1)}:{direct.group(2)}",)
            else:
                found = [place for inner in re.findall(r"#loc\d*", body) for place in self.places(inner)]
                self._resolved[alias] = tuple(found[:_MAX_CALLS])
        return self._resolved[alias]

    def strip_loc(self, line: str) -> tuple[str, tuple[str, ...]]:
        match = _TRAILING_LOC.search(line)
        if match is None:
            return line, ()
        return line[: match.start()], self.places(match.group(1))

    # ---- structure

    def function(self) -> Function:
        functions = []
        while self.pos < len(self.lines):
            line = self.next()
            if line.startswith("tt.func"):
                functions.append(self._function(line))
            elif not (line.startswith(("module", "}", "#"))):
                raise TTIRError(f"unexpected line outside a function: {line[:120]!r}")
        public = [f for f, is_public in functions if is_public]
        if len(public) != 1:
            raise TTIRError(f"expected one public function, found {len(public)}")
        if len(functions) > 1:
            raise UnsupportedTTIR("a call of a noinline function")
        return public[0]

    def _function(self, line: str) -> tuple[Function, bool]:
        match = re.match(r'^tt\.func (public |private )?@("[^"]*"|[A-Za-z0-9_$.]+)\(', line)
        if match is None or not line.endswith("{"):
            raise TTIRError(f"malformed function header: {line[:120]!r}")
        depth, end = 0, -1
        for k in range(match.end() - 1, len(line)):
            depth += line[k] == "("
            depth -= line[k] == ")"
            if depth == 0:
                end = k
                break
        if end < 0:
            raise TTIRError("unbalanced function header")
        self.scopes = [{}]
        args: list[Value] = []
        for part in split_top(line[match.end() : end]):
            name, _, rest = part.partition(": ")
            type_text = re.split(r" \{| loc\(", rest, maxsplit=1)[0]
            args.append(self._define(name, parse_type(type_text), len(args), None))
            said = re.search(r"tt\.divisibility = (\d+)", rest)
            args[-1].multiple = int(said[1]) if said else 1
            args[-1].is_unit = said is not None and said[1] == "1"
        body = self._region(None, entry_args=[], depth=0)
        return Function(match.group(2).strip('"'), args, body), match.group(1) != "private "

    def _define(self, name: str, type_: Type, index: int, op: Op | None) -> Value:
        if not name.startswith("%"):
            raise TTIRError(f"malformed value name {name[:60]!r}")
        value = Value(name, type_, op, index)
        self.scopes[-1][name] = value
        return value

    def _region(self, parent: Op | None, entry_args: list[tuple[str, Type]], depth: int) -> Region:
        """Lines up to the one that begins with ``}`` (left unread)."""
        if depth > _MAX_DEPTH:
            raise TTIRError("regions nest too deeply")
        self.scopes.append({})
        first = BasicBlock("", [], parent=parent)
        for k, (name, type_) in enumerate(entry_args):
            value = self._define(name, type_, k, None)
            value.block = first
            first.args.append(value)
        blocks = [first]
        while not self.lines[self.pos : self.pos + 1] or not self.lines[self.pos].startswith("}"):
            line = self.next()
            if line.startswith("^"):
                block = self._block_header(line, parent)
                if not blocks[-1].ops and len(blocks) == 1 and not first.args:
                    blocks = [block]
                else:
                    blocks.append(block)
                continue
            op = self._op(line, depth)
            op.block = blocks[-1]
            blocks[-1].ops.append(op)
        self.scopes.pop()
        return Region(blocks)

    def _block_header(self, line: str, parent: Op | None) -> BasicBlock:
        match = re.match(r"^(\^[A-Za-z0-9_]+)(?:\((.*)\))?:", line)
        if match is None:
            raise TTIRError(f"malformed block header {line[:80]!r}")
        block = BasicBlock(match.group(1), [], parent=parent)
        for part in split_top(match.group(2) or ""):
            name, _, rest = part.partition(": ")
            value = self._define(name, parse_type(re.split(r" loc\(", rest)[0]), len(block.args), None)
            value.block = block
            block.args.append(value)
        return block

    # ---- operations

    def _op(self, line: str, depth: int) -> Op:
        text, places = self.strip_loc(line)
        names: list[str] = []
        match = _RESULTS.match(text)
        if match is not None:
            for part in match.group(1).split(", "):
                name, _, count = part.partition(":")
                if count and int(count) > 64:
                    raise TTIRError("too many results")
                names += [f"{name}#{k}" for k in range(int(count))] if count else [name]
            text = text[match.end() :]
        op_name = _OP_NAME.match(text)
        if op_name is None:
            raise TTIRError(f"malformed operation {line[:120]!r}")
        loc = places[0] if places else ""
        op = Op(op_name.group(1), [], [], {}, loc=loc, callers=places[1:], number=self.made)
        self.made += 1
        rest = text[op_name.end() :]
        reader = {
            "scf.for": self._for,
            "scf.if": self._if,
            "scf.while": self._while,
            "tt.reduce": self._combine,
            "tt.scan": self._combine,
            "tt.map_elementwise": self._combine,
        }.get(op.name)
        try:
            types = reader(op, rest, depth) if reader is not None else self._plain(op, rest)
        except UnsupportedTTIR as error:
            if error.where:
                raise
            raise UnsupportedTTIR(f"{op.name} ({error.what})", loc) from None  # shared memory of Gluon, descriptors
        if len(types) == 1 and len(names) == 2 and op.name == "tt.split":
            types = types * 2
        if len(types) < len(names):
            raise TTIRError(f"{op.name} has {len(names)} results but {len(types)} types: {line[:160]!r}")
        for k, name in enumerate(names):
            value = self._define(name, types[k], k, op)
            op.results.append(value)
        for operand in op.operands:
            operand.uses.append(op)
        return op

    def _operands(self, text: str) -> list[Value]:
        return [self.lookup(name) for name in _NAME.findall(re.sub(r'"[^"]*"', "", text))]

    def _plain(self, op: Op, rest: str) -> list[Type]:
        if op.name in ("cf.cond_br", "cf.br"):
            return self._branch(op, rest)
        if op.name == "arith.constant":
            return self._constant(op, rest)
        if op.name == "tt.elementwise_inline_asm":
            return self._assembly(op, rest)
        colon = _find_type_colon(rest)
        head, types = (rest[:colon], rest[colon + 1 :]) if colon >= 0 else (rest, "")
        op.operands = self._operands(head)
        op.attrs = attributes(head)
        if op.name == "tt.dot_scaled":
            op.attrs = scaled(head)
        if op.name in ("tt.print", "tt.assert"):
            quoted = re.search(r'"((?:[^"\\]|\\.)*)"', head)
            op.attrs["text"] = unescape(quoted.group(1)) if quoted is not None else ""
            signs = re.search(r"isSigned = array<i32: ([^>]*)>", head)
            op.attrs["signed"] = signs.group(1) if signs is not None else ""
            op.attrs["hex"] = "true" if "hex = true" in head else ""
        return _result_types(op, head, types.strip())

    def _assembly(self, op: Op, rest: str) -> list[Type]:
        """``"text" {constraints = "...", packed_element = 1 : i32, pure = true} %a : type -> type``"""
        match = _ASSEMBLY.match(rest)
        if match is None:
            raise TTIRError(f"malformed {op.name} {rest[:160]!r}")
        text, constraints, packed, pure, tail = match.groups()
        op.attrs = {"asm": unescape(text), "constraints": unescape(constraints), "pack": packed, "pure": pure}
        head, _, types = tail.rpartition(" -> ")
        op.operands = self._operands(head)
        return [parse_type(t) for t in split_top(unparen(types.strip()))]

    def _branch(self, op: Op, rest: str) -> list[Type]:
        parts = split_top(rest)
        for part in parts:
            match = re.match(r"^(\^[A-Za-z0-9_]+)(?:\((.*)\))?$", part)
            if match is not None:
                inner = (match.group(2) or "").rpartition(" : ")[0] if match.group(2) else ""
                op.successors.append((match.group(1), self._operands(inner)))
            else:
                op.operands.append(self.lookup(part))
        for _, values in op.successors:
            for value in values:
                value.uses.append(op)
        return []

    def _constant(self, op: Op, rest: str) -> list[Type]:
        body = rest.strip()
        if body in ("true", "false"):
            op.attrs["value"] = body
            return [Type("i1")]
        colon = _find_type_colon(body)
        if colon < 0:
            raise TTIRError(f"malformed constant {body[:80]!r}")
        value = re.sub(r"^\{[^}]*\}\s*", "", body[:colon].strip())
        op.attrs["value"] = value[6:-1] if value.startswith("dense<") else value
        return [parse_type(body[colon + 1 :])]

    def _close(self, expected: str) -> str:
        line = self.next()
        text, _ = self.strip_loc(line)
        if not text.startswith(expected):
            raise TTIRError(f"expected {expected!r}, found {line[:80]!r}")
        return text

    def _for(self, op: Op, rest: str, depth: int) -> list[Type]:
        match = re.match(r"^( unsigned)? (%\S+) = (%\S+) to (%\S+) step (%\S+) *", rest)
        if match is None or not rest.endswith("{"):
            raise TTIRError(f"malformed scf.for {rest[:160]!r}")
        unsigned, iv, low, high, step = match.groups()
        iters, type_text, tail = "", "", rest[match.end() : -1]
        if tail.startswith("iter_args("):
            head, _, tail = tail.rpartition(") -> (")
            iters = head[len("iter_args(") :]
            type_text, _, tail = tail.rpartition(")")
        iv_type = tail.strip().removeprefix(":").strip()
        op.attrs["unsigned"] = "1" if unsigned else ""
        op.operands = [self.lookup(low), self.lookup(high), self.lookup(step)]
        types = [parse_type(t) for t in split_top(type_text)]
        entry = [(iv, parse_type(iv_type) if iv_type else Type("index"))]
        for part, type_ in zip(split_top(iters), types, strict=True):
            name, _, init = part.partition(" = ")
            op.operands.append(self.lookup(init))
            entry.append((name, type_))
        op.regions.append(self._region(op, entry, depth + 1))
        op.attrs.update(attributes(self._close("}").removeprefix("}")))
        return types

    def _if(self, op: Op, rest: str, depth: int) -> list[Type]:
        match = re.match(r"^ (%\S+)(?: -> \((.*)\))?\s*\{$", rest)
        if match is None:
            raise TTIRError(f"malformed scf.if {rest[:160]!r}")
        op.operands = [self.lookup(match.group(1))]
        op.regions.append(self._region(op, [], depth + 1))
        if self._close("}").startswith("} else"):
            op.regions.append(self._region(op, [], depth + 1))
            self._close("}")
        return [parse_type(t) for t in split_top(match.group(2) or "")]

    def _while(self, op: Op, rest: str, depth: int) -> list[Type]:
        head, colon, types_text = rest.rpartition(" : (")
        before, arrow, after = types_text.rpartition(") -> ")
        if not colon or not arrow or not rest.endswith("{"):
            raise TTIRError(f"malformed scf.while {rest[:160]!r}")
        types = [parse_type(t) for t in split_top(before)]
        entry = []
        for part, type_ in zip(split_top(unparen(head.strip())), types, strict=True):
            name, _, init = part.partition(" = ")
            op.operands.append(self.lookup(init))
            entry.append((name, type_))
        op.regions.append(self._region(op, entry, depth + 1))
        self._close("} do")
        op.regions.append(self._region(op, [], depth + 1))
        self._close("}")
        return [parse_type(t) for t in split_top(unparen(after[:-1].strip()))]

    def _combine(self, op: Op, rest: str, depth: int) -> list[Type]:
        head, brace, written = rest.rpartition(") <{")
        if not brace or not head.startswith("(") or not written.endswith("}> ({"):
            raise TTIRError(f"malformed {op.name} {rest[:120]!r}")
        op.operands = self._operands(head[1:])
        op.attrs = attributes("{" + written[: -len("> ({")])
        op.regions.append(self._region(op, [], depth + 1))
        if len(op.regions[0].blocks) > 1:
            self._name_apart(op.regions[0])
            order_blocks(op.regions[0])
        closing = self._close("})")
        arrow = closing.rpartition("->")[2].strip()
        return [parse_type(t) for t in split_top(unparen(arrow))]

    def _name_apart(self, region: Region) -> None:
        """Give the blocks of a function inside an operation labels that no other block has."""
        self.functions += 1
        names = {block.label: f"{block.label}_of_{self.functions}" for block in region.blocks}
        for block in region.blocks:
            block.label = names[block.label]
            for op in block.ops:
                op.successors = [(names.get(label, label), passed) for label, passed in op.successors]


def _result_types(op: Op, head: str, text: str) -> list[Type]:
    name = op.name
    if name == "tt.make_tensor_descriptor" or "tensordesc" in text:
        raise UnsupportedTTIR(name, op.loc)
    if not text:
        return []
    if "->" in text:
        after = text.rpartition("->")[2].strip()
        return [parse_type(t) for t in split_top(unparen(after))]
    if " to " in text:
        return [parse_type(text.rpartition(" to ")[2])]
    if name in (
        "tt.store",
        "tt.print",
        "tt.assert",
        "scf.yield",
        "scf.condition",
        "tt.reduce.return",
        "tt.scan.return",
        "tt.map_elementwise.return",
    ):
        return []
    if name == "tt.unsplat":  # printed with its operand's type alone
        return [parse_type(text).scalar()]
    parts = split_top(text)
    first, last = parse_type(parts[0]), parse_type(parts[-1])
    if name in ("arith.cmpi", "arith.cmpf"):
        return [first.with_elem("i1")]
    if name == "tt.load":
        if first.elem != "ptr" or first.pointee is None:
            raise TTIRError("tt.load of something that is not a pointer")
        return [Type(first.pointee, first.shape)]
    if name == "arith.select":
        return [last]
    if name in ("arith.mulsi_extended", "arith.mului_extended", "arith.addui_extended"):
        return [first, first]
    return [first]


def parse_ttir(text: str) -> Function:
    """The one public function of a TTIR module.

    Raises:
        TTIRError: malformed text.
        UnsupportedTTIR: a construct that is read but not simulated.
    """
    if len(text) > 8 << 20:
        raise TTIRError(f"TTIR of {len(text)} characters is over the limit of 8 MiB")
    try:
        function = _Reader(text).function()
    except RecursionError:
        raise TTIRError("the text nests too deeply") from None
    except (IndexError, KeyError, ValueError) as error:
        if isinstance(error, TTIRError):
            raise
        raise TTIRError(f"malformed TTIR: {error}") from None
    verify(function)
    order_blocks(function.body)
    return function


# ---- branches between blocks


def order_blocks(region: Region) -> None:
    """Sort the blocks of a function's body, entry first.

    Raises:
        UnsupportedTTIR: branches that lead back: loops are ``scf`` operations, which count their steps.
        TTIRError: a branch to a block that is not there, or a block that nothing branches to.
    """
    by_label = {block.label: block for block in region.blocks}
    finished: list[BasicBlock] = []
    open_: set[int] = set()
    done: set[int] = set()
    stack = [(region.blocks[0], iter(_successors(region.blocks[0])))]
    open_.add(id(region.blocks[0]))
    while stack:
        block, targets = stack[-1]
        label = next(targets, None)
        if label is None:
            stack.pop()
            done.add(id(block))
            finished.append(block)
            continue
        target = by_label.get(label)
        if target is None:
            raise TTIRError(f"a branch to {label}, which is not there")
        if id(target) in done:
            continue
        if id(target) in open_:
            raise UnsupportedTTIR("a branch backwards")
        open_.add(id(target))
        stack.append((target, iter(_successors(target))))
    if len(finished) != len(region.blocks):
        raise TTIRError("a block that nothing branches to")
    region.blocks[:] = reversed(finished)


def _successors(block: BasicBlock) -> list[str]:
    return [label for op in block.ops for label, _ in op.successors]
