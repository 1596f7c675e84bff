"""A small part of Python as a language for native helpers, compiled to LLVM IR in registers, which needs no passes.

Values are ``i1``, ``i8`` to ``i64``, ``f64`` (a double), ``ptr`` and ``v16`` (sixteen ``i32``, compared into sixteen
truths). Integers are unsigned but for ``signed_less``. A pointer is indexed by what it points at, 64-bit words unless
said otherwise: ``i8(p)[k]`` is the byte ``k`` behind it, ``ptr(p)[k]`` a pointer; of a number the same names convert.
``a if c else b``, ``and`` and ``or`` look at both sides. Parameters are ``i64`` without an annotation. A function under
``@inline`` is written where it is called, and returns at its end alone.
"""

import ast
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

LLVM = {"f64": "double", "v16": "<16 x i32>", "m16": "<16 x i1>"}
"""names of types where they differ"""
_TWO: dict[type, tuple[str, Callable[[int, int], int]]] = {
    ast.Add: ("add", operator.add), ast.Sub: ("sub", operator.sub), ast.Mult: ("mul", operator.mul),
    ast.BitAnd: ("and", operator.and_), ast.BitOr: ("or", operator.or_), ast.BitXor: ("xor", operator.xor),
    ast.LShift: ("shl", operator.lshift), ast.RShift: ("lshr", operator.rshift), ast.Mod: ("urem", operator.mod),
}  # fmt: skip
_COMPARE: dict[type, str] = {
    ast.Eq: "eq", ast.NotEq: "ne", ast.Lt: "ult", ast.LtE: "ule", ast.Gt: "ugt", ast.GtE: "uge",
}  # fmt: skip
Signature = tuple[str, tuple[str, ...]]
"""what a function gives, and what it takes"""
OUTSIDE: dict[str, Signature] = {
    "memcmp": ("i32", ("ptr", "ptr", "i64")), "clock_gettime": ("i32", ("i32", "ptr")),
    "llvm.memset.p0.i64": ("void", ("ptr", "i8", "i64", "i1")), "llvm.cttz.i64": ("i64", ("i64", "i1")),
    "llvm.ctpop.i64": ("i64", ("i64",)), "llvm.umax.i32": ("i32", ("i32", "i32")),
    "llvm.umax.i64": ("i64", ("i64", "i64")),
}  # fmt: skip


class Operand(NamedTuple):
    """A register or a constant."""

    text: str
    ty: str
    """empty for a whole number that takes the type of what it meets"""
    view: str = "i64"
    """of a pointer: what it points at"""

    @property
    def typed(self) -> str:
        """As an operand."""
        return f"{llvm(self.ty)} {self.text}"


Environment = dict[str, Operand]
NOTHING = Operand("", "void")


def llvm(ty: str) -> str:
    """LLVM's name of a type."""
    return LLVM.get(ty, ty)


def compiled(source: str, constants: Mapping[str, Any], exported: Sequence[str]) -> str:
    """The IR of the functions in ``source``; all but the ``exported`` ones are internal."""
    functions = [node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef)]
    inline = {one.name: one for one in functions if one.decorator_list}
    known = OUTSIDE | {
        one.name: (_named(one.returns) or "void", tuple(_named(arg.annotation) or "i64" for arg in one.args.args))
        for one in functions
    }
    declared = [f"declare {llvm(of)} @{name}({', '.join(map(llvm, takes))})" for name, (of, takes) in OUTSIDE.items()]
    written = [
        _Function(one, known, inline, constants).text("" if one.name in exported else "internal ")
        for one in functions
        if one.name not in inline
    ]
    return "\n".join([*declared, *written]) + "\n"


def _named(node: ast.expr | None) -> str:
    return node.id if isinstance(node, ast.Name) else ""


class _Function(ast.NodeVisitor):
    """The lines of one function, and what its variables hold at the place that is being written."""

    def __init__(
        self, node: ast.FunctionDef, known: Mapping[str, Signature], inline: Mapping[str, ast.FunctionDef],
        constants: Mapping[str, Any],
    ) -> None:  # fmt: skip
        self.node, self.known, self.inline, self.constants = node, known, inline, constants
        self.lines: list[str] = []
        self.env: Environment = {}
        self.label, self.open, self.count = "start", True, 0
        self.loops: list[tuple[str, list[tuple[str, Environment]]]] = []
        """the open ones: where each goes on, and from where with which values it does"""

    def text(self, linkage: str) -> str:
        """The whole definition."""
        result, takes = self.known[self.node.name]
        self.env = {arg.arg: Operand(f"%{arg.arg}", ty) for arg, ty in zip(self.node.args.args, takes, strict=True)}
        given = ", ".join(value.typed for value in self.env.values())
        self.block(self.node.body)
        if self.open:
            self.line("ret void")
        body = "\n".join(self.lines)
        return f"define {linkage}{llvm(result)} @{self.node.name}({given}) {{\nstart:\n{body}\n}}"

    # ---- lines and blocks

    def line(self, text: str) -> None:
        """An instruction without a result."""
        self.lines.append(f"  {text}")

    def new(self, text: str, ty: str, view: str = "i64") -> Operand:
        """The register that an instruction sets."""
        self.count += 1
        self.line(f"%r{self.count} = {text}")
        return Operand(f"%r{self.count}", ty, view)

    def labels(self, *hints: str) -> list[str]:
        """New labels."""
        self.count += 1
        return [f"{hint}{self.count}" for hint in hints]

    def start(self, label: str, env: Environment) -> None:
        """Begin a block."""
        self.lines.append(f"{label}:")
        self.label, self.open, self.env = label, True, dict(env)

    def jump(self, label: str) -> None:
        """End a block."""
        self.line(f"br label %{label}")
        self.open = False

    def block(self, body: Sequence[ast.stmt]) -> None:
        """Statements, one after another."""
        for statement in body:
            self.visit(statement)

    # ---- statements

    def visit_Expr(self, node: ast.Expr) -> None:
        if not isinstance(node.value, ast.Constant):
            self.visit(node.value)

    def visit_Assign(self, node: ast.Assign) -> None:
        target, value = node.targets[0], node.value
        if not isinstance(target, ast.Tuple) or not isinstance(value, ast.Tuple):
            self.set(target, self.visit(value))
            return
        for each, found in zip(target.elts, [self.visit(one) for one in value.elts], strict=True):
            self.set(each, found)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        if isinstance(node.target, ast.Name):
            self.env[node.target.id] = self.two(node.op, self.env[node.target.id], self.visit(node.value))
        else:
            place = self.place(node.target)
            self.store(place, self.two(node.op, self.load(place), self.visit(node.value)))

    def set(self, target: ast.expr, value: Operand) -> None:
        """Give a variable or a place in memory its value."""
        if isinstance(target, ast.Name):
            self.env[target.id] = value if value.ty else value._replace(ty="i64")
        else:
            self.store(self.place(target), value)

    def visit_Return(self, node: ast.Return) -> None:
        found = self.visit(node.value)._replace(ty=self.known[self.node.name][0]).typed if node.value else "void"
        self.line(f"ret {found}")
        self.open = False

    def visit_If(self, node: ast.If) -> None:
        condition = self.visit(node.test)
        yes, no, end = self.labels("yes", "no", "end")
        self.line(f"br i1 {condition.text}, label %{yes}, label %{no if node.orelse else end}")
        before = self.env
        ways = [] if node.orelse else [(self.label, before)]
        for label, body in ((yes, node.body), (no, node.orelse))[: 2 if node.orelse else 1]:
            self.start(label, before)
            self.block(body)
            if self.open:
                ways.append((self.label, self.env))
                self.jump(end)
        if ways:
            self.start(end, {})
        for name in [name for name in ways[0][1] if all(name in env for _, env in ways)] if ways else ():
            values = [(env[name], label) for label, env in ways]
            first = values[0][0]
            text = ", ".join(f"[ {value.text}, %{label} ]" for value, label in values)
            differ = len({value for value, _ in values}) > 1
            self.env[name] = self.new(f"phi {llvm(first.ty)} {text}", first.ty, first.view) if differ else first

    def visit_While(self, node: ast.While) -> None:
        head, body, done = self.labels("loop", "body", "done")
        again = [(self.label, self.env)]
        names = {one.id for part in node.body for one in ast.walk(part)
                 if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)}  # fmt: skip
        self.jump(head)
        self.start(head, self.env)
        at = len(self.lines)
        changing = {name: self.new("", old.ty, old.view) for name, old in self.env.items() if name in names}
        self.env |= changing
        self.line(f"br i1 {self.visit(node.test).text}, label %{body}, label %{done}")
        after = self.env
        self.start(body, after)
        self.loops.append((head, again))
        self.block(node.body)
        if self.open:
            self.visit_Continue()
        self.loops.pop()
        for k, (name, value) in enumerate(changing.items()):
            ways = ", ".join(f"[ {env[name].text}, %{label} ]" for label, env in again)
            self.lines[at + k] = f"  {value.text} = phi {llvm(value.ty)} {ways}"
        self.start(done, after)

    def visit_Continue(self, node: ast.Continue | None = None) -> None:
        head, again = self.loops[-1]
        again.append((self.label, self.env))
        self.jump(head)

    # ---- memory

    def place(self, node: ast.expr) -> Operand:
        """The address of a subscript."""
        assert isinstance(node, ast.Subscript)
        return self.behind(self.visit(node.value), self.visit(node.slice))

    def behind(self, pointer: Operand, index: Operand) -> Operand:
        """The address of an element."""
        if index.text == "0":
            return pointer
        text = f"getelementptr {llvm(pointer.view)}, ptr {pointer.text}, i64 {index.text}"
        return self.new(text, "ptr", pointer.view)

    def load(self, place: Operand) -> Operand:
        """What stands at an address."""
        return self.new(f"load {llvm(place.view)}, ptr {place.text}, align 1", place.view)

    def store(self, place: Operand, value: Operand) -> None:
        """Write to an address."""
        self.line(f"store {llvm(place.view)} {value.text}, ptr {place.text}, align 1")

    def stored(self, row: Operand, values: Sequence[Operand]) -> Operand:
        """Write words one after another."""
        for k, value in enumerate(values):
            self.store(self.behind(row, Operand(str(k), "")), value)
        return NOTHING

    # ---- expressions

    def visit_Constant(self, node: ast.Constant) -> Operand:
        if node.value is None:
            return Operand("null", "ptr")
        if isinstance(node.value, bool):
            return Operand(str(node.value).lower(), "i1")
        return Operand(repr(node.value), "f64" if isinstance(node.value, float) else "")

    def visit_Name(self, node: ast.Name) -> Operand:
        return self.env[node.id] if node.id in self.env else Operand(str(int(self.constants[node.id])), "")

    def visit_Attribute(self, node: ast.Attribute) -> Operand:
        return Operand(str(int(getattr(self.constants[_named(node.value)], node.attr))), "")

    def visit_Subscript(self, node: ast.Subscript) -> Operand:
        return self.load(self.place(node))

    def visit_BinOp(self, node: ast.BinOp) -> Operand:
        return self.two(node.op, self.visit(node.left), self.visit(node.right))

    def two(self, kind: ast.operator, a: Operand, b: Operand) -> Operand:
        """An operation on two numbers; a pointer and a number give the pointer so many elements on."""
        if a.ty == "ptr":
            return self.behind(a, b)
        op, fold = _TWO[type(kind)]
        if not a.ty and not b.ty:
            return Operand(str(fold(int(a.text), int(b.text))), "")
        a, b = self.alike(a, b)
        return self.new(f"{'f' * (a.ty == 'f64')}{op} {a.typed}, {b.text}", a.ty)

    def alike(self, a: Operand, b: Operand) -> tuple[Operand, Operand]:
        """Both with the type that one of them has; of sixteen, a constant is all."""
        ty = a.ty or b.ty or "i64"
        a, b = (one if one.ty or ty != "v16" else Operand(f"splat (i32 {one.text})", ty) for one in (a, b))
        return a._replace(ty=a.ty or ty), b._replace(ty=b.ty or ty)

    def visit_Compare(self, node: ast.Compare) -> Operand:
        a, b = self.alike(self.visit(node.left), self.visit(node.comparators[0]))
        return self.new(f"icmp {_COMPARE[type(node.ops[0])]} {a.typed}, {b.text}", "m16" if a.ty == "v16" else "i1")

    def visit_BoolOp(self, node: ast.BoolOp) -> Operand:
        found, *others = (self.visit(one) for one in node.values)
        for other in others:
            found = self.new(f"{type(node.op).__name__.lower()} {found.typed}, {other.text}", found.ty)
        return found

    def visit_UnaryOp(self, node: ast.UnaryOp) -> Operand:
        return self.new(f"xor {self.visit(node.operand).typed}, true", "i1")  # not

    def visit_IfExp(self, node: ast.IfExp) -> Operand:
        condition = self.visit(node.test)
        a, b = self.alike(self.visit(node.body), self.visit(node.orelse))
        return self.new(f"select {condition.typed}, {a.typed}, {b.typed}", a.ty, a.view)

    # ---- calls

    def visit_Call(self, node: ast.Call) -> Operand:
        name, args = _named(node.func), [self.visit(arg) for arg in node.args]
        if name in self.inline:
            return self.inlined(self.inline[name], args)
        if name in self.env:  # a function that the host gave
            self.line(f"call void {self.env[name].text}({', '.join(one.typed for one in args)})")
            return NOTHING
        if name in self.known:
            return self.called(name, *args)
        return _CALLS[name](self, *args) if name in _CALLS else self.converted(args[0], name)

    def inlined(self, function: ast.FunctionDef, args: Sequence[Operand]) -> Operand:
        """The body of a function, in this one."""
        outside, self.env = self.env, {}
        for arg, value in zip(function.args.args, args, strict=True):
            self.env[arg.arg] = value if value.ty else value._replace(ty="i64")
        *body, last = function.body
        self.block(body)
        found = NOTHING
        if isinstance(last, ast.Return) and last.value is not None:
            found = self.visit(last.value)
        else:
            self.block([last])
        self.env = outside
        return found

    def called(self, name: str, *args: Operand) -> Operand:
        """A call of a function that is known."""
        result, takes = self.known[name]
        given = ", ".join(one._replace(ty=ty).typed for ty, one in zip(takes, args, strict=True))
        text = f"call {llvm(result)} @{name}({given})"
        if result != "void":
            return self.new(text, result)
        self.line(text)
        return NOTHING

    def converted(self, value: Operand, ty: str) -> Operand:
        """A number in another type; a pointer that points at another."""
        if not value.ty or value.ty == "ptr":
            return value._replace(view=ty) if value.ty else value._replace(ty=ty)
        wider = ty not in ("ptr", "f64") and int(value.ty[1:]) < int(ty[1:])
        how = {"ptr": "inttoptr", "f64": "uitofp"}.get(ty, "zext" if wider else "trunc")
        return self.new(f"{how} {value.typed} to {llvm(ty)}", ty)


_CALLS: dict[str, Callable[..., Operand]] = {
    "signed_less": lambda f, a, b: f.new(f"icmp slt {a.typed}, {b.text}", "i1"),
    "umax": lambda f, a, b: f.called(f"llvm.umax.{a.ty}", a, b),
    "cttz": lambda f, a: f.called("llvm.cttz.i64", a, Operand("true", "i1")),
    "ctpop": lambda f, a: f.called("llvm.ctpop.i64", a),
    "memset": lambda f, at, byte, count: f.called("llvm.memset.p0.i64", at, byte, count, Operand("false", "i1")),
    "bits": lambda f, a: f.new(f"bitcast {a.typed} to i64", "i64"),  # of a double
    "room": lambda f, words: f.new(f"alloca [{words.text} x i64]", "ptr"),  # on the stack
    "put": lambda f, row, *words: f.stored(row, words),
    "lanes": lambda f: Operand("<" + ", ".join(f"i32 {k}" for k in range(16)) + ">", "v16"),
    "splat": lambda f, a: f.new(
        f"shufflevector {f.new(f'insertelement <16 x i32> poison, {a.typed}, i64 0', 'v16').typed}, "
        "<16 x i32> poison, <16 x i32> zeroinitializer", "v16",
    ),
    "any": lambda f, a: f.new(f"icmp ne i16 {f.new(f'bitcast {a.typed} to i16', 'i16').text}, 0", "i1"),
}  # fmt: skip
"""what the language has of its own"""
