"""Random kernels, each with its meaning in torch: what no person would write, to find what no person would try.

A kernel is a list of statements over block variables. Every statement is written twice: as Triton source, and as torch
code that the reference executes in float64. Values stay bounded, so that tolerances need no care.
"""

import random
from dataclasses import dataclass, field

SHAPES = ((32,), (64,), (8, 8), (4, 16), (16, 4), (16, 16), (2, 32), (1, 16))

HEADER = """import triton
import triton.language as tl


"""


@dataclass
class Var:
    """A block variable of the generated code."""

    name: str
    shape: tuple[int, ...]


@dataclass
class Program:
    """Both texts of one kernel."""

    name: str
    inputs: list[tuple[int, ...]] = field(default_factory=list)
    outputs: list[tuple[int, ...]] = field(default_factory=list)
    triton: list[str] = field(default_factory=list)
    torch: list[str] = field(default_factory=list)

    def source(self) -> str:
        """The Triton function."""
        names = [f"x{k}" for k in range(len(self.inputs))] + [f"o{k}" for k in range(len(self.outputs))]
        return (
            f"@triton.jit\ndef {self.name}({', '.join([*names, 'scratch', 'n', 'flag'])}):\n"
            + "\n".join(self.triton)
            + "\n"
        )


def offsets(shape: tuple[int, ...]) -> str:
    """Row-major element numbers of a block, as Triton source."""
    if len(shape) == 1:
        return f"tl.arange(0, {shape[0]})"
    return f"(tl.arange(0, {shape[0]})[:, None] * {shape[1]} + tl.arange(0, {shape[1]})[None, :])"


class Generator:
    """Writes one program.

    With ``long_lived`` the program is longer, goes back to its oldest values throughout, and has ``while`` loops and
    early returns: what a value's memory must survive.
    """

    def __init__(self, seed: int, *, long_lived: bool = False):
        self.rng = random.Random(seed)
        self.long_lived = long_lived
        self.program = Program(f"{'long' if long_lived else 'kernel'}_{seed}")
        self.vars: list[Var] = []
        self.indent = "    "
        self.counter = 0

    def build(self) -> Program:
        """A whole kernel."""
        for _ in range(self.rng.randint(2, 4)):
            self.load()
        for _ in range(self.rng.randint(12, 24) if self.long_lived else self.rng.randint(4, 14)):
            self.statement(depth=0)
            if self.long_lived and self.rng.random() < 0.1:
                self.leave()
        for var in self.rng.sample(self.vars, min(6 if self.long_lived else 3, len(self.vars))):
            self.store(var)
        return self.program

    # ---- writing

    def emit(self, triton: str, torch: str) -> None:
        self.program.triton.append(self.indent + triton)
        self.program.torch.append(self.indent[4:] + torch)

    def fresh(self, shape: tuple[int, ...]) -> Var:
        self.counter += 1
        return Var(f"v{self.counter}", shape)

    def define(self, shape: tuple[int, ...], triton: str, torch: str) -> Var:
        var = self.fresh(shape)
        self.emit(f"{var.name} = {triton}", f"{var.name} = {torch}")
        self.vars.append(var)
        return var

    def pick(self, shape: tuple[int, ...] | None = None, rank: int | None = None) -> Var | None:
        found = [v for v in self.vars if (shape is None or v.shape == shape) and (rank is None or len(v.shape) == rank)]
        if self.long_lived and found and self.rng.random() < 0.4:
            return found[0]
        return self.rng.choice(found) if found else None

    # ---- statements

    def load(self) -> None:
        shape = self.rng.choice(SHAPES)
        k = len(self.program.inputs)
        self.program.inputs.append(shape)
        limit = self.rng.choice(["", f", mask={offsets(shape)} < n, other=0.25"])
        reference = f"x{k}.clone()" if not limit else f"where(number({shape}) < n, x{k}, 0.25)"
        self.define(shape, f"tl.load(x{k} + {offsets(shape)}{limit})", reference)

    def store(self, var: Var) -> None:
        k = len(self.program.outputs)
        self.program.outputs.append(var.shape)
        self.emit(f"tl.store(o{k} + {offsets(var.shape)}, {var.name})", f"o{k}[...] = {var.name}")

    def statement(self, depth: int) -> None:
        choices = [self.binary, self.binary, self.unary, self.reduce, self.spread, self.turn, self.scan, self.select,
                   self.matmul, self.memory, self.regroup]  # fmt: skip
        if depth < 2:
            choices += [self.loop, self.branch]
            if self.long_lived:
                choices += [self.loop, self.repeat, self.repeat]
        self.rng.choice(choices)() if depth == 0 else self.rng.choice(choices[:9] if depth > 1 else choices)()

    def binary(self) -> None:
        a = self.pick()
        assert a is not None
        b = self.pick(a.shape)
        assert b is not None
        form = self.rng.choice(["({a} * 0.5 + {b} * 0.5)", "({a} * {b})", "({a} - {b}) * 0.5", "{max}({a}, {b})"])
        self.define(
            a.shape, form.format(a=a.name, b=b.name, max="tl.maximum"), form.format(a=a.name, b=b.name, max="maximum")
        )

    def unary(self) -> None:
        a = self.pick()
        assert a is not None
        triton, torch = self.rng.choice(
            [("tl.exp(-tl.abs({0}))", "exp(-abs({0}))"), ("tl.cos({0})", "cos({0})"), ("(-{0})", "(-{0})"),
             ("tl.sqrt(tl.abs({0}) + 0.1)", "sqrt(abs({0}) + 0.1)"), ("{0}.to(tl.float64).to(tl.float32)", "{0} * 1.0")]
        )  # fmt: skip
        self.define(a.shape, triton.format(a.name), torch.format(a.name))

    def reduce(self) -> None:
        a = self.pick(rank=2)
        if a is None:
            return
        axis = self.rng.randrange(2)
        shape = a.shape[:axis] + a.shape[axis + 1 :]
        if shape == (1,):
            return
        if self.rng.random() < 0.5:
            self.define(shape, f"tl.sum({a.name}, {axis}) / {a.shape[axis]}", f"{a.name}.mean({axis})")
        else:
            self.define(shape, f"tl.max({a.name}, {axis})", f"{a.name}.amax({axis})")

    def spread(self) -> None:
        matrix, vector = self.pick(rank=2), self.pick(rank=1)
        if matrix is None or vector is None:
            return
        if vector.shape[0] == matrix.shape[0]:
            at = "[:, None]"
        elif vector.shape[0] == matrix.shape[1]:
            at = "[None, :]"
        else:
            return
        self.define(
            matrix.shape,
            f"{matrix.name} * 0.5 - {vector.name}{at} * 0.5",
            f"{matrix.name} * 0.5 - {vector.name}{at} * 0.5",
        )

    def turn(self) -> None:
        a = self.pick(rank=2)
        if a is not None:
            self.define(a.shape[::-1], f"tl.trans({a.name})", f"{a.name}.t()")

    def regroup(self) -> None:
        a = self.pick()
        assert a is not None
        size = a.shape[0] if len(a.shape) == 1 else a.shape[0] * a.shape[1]
        target = self.rng.choice([(size,), (size // 4, 4), (4, size // 4), (size // 2, 2)])
        if 0 in target:
            return
        flip = self.rng.random() < 0.3 and len(target) == 1
        triton, torch = f"tl.reshape({a.name}, {target})", f"{a.name}.reshape({target})"
        if flip:
            triton, torch = f"tl.flip({triton}, 0)", f"{torch}.flip(0)"
        self.define(target, triton, torch)

    def scan(self) -> None:
        a = self.pick()
        assert a is not None
        axis = self.rng.randrange(len(a.shape))
        reverse = self.rng.random() < 0.3
        want = f"{a.name}.flip({axis}).cumsum({axis}).flip({axis})" if reverse else f"{a.name}.cumsum({axis})"
        self.define(
            a.shape, f"tl.cumsum({a.name}, {axis}, reverse={reverse}) / {a.shape[axis]}", f"{want} / {a.shape[axis]}"
        )

    def select(self) -> None:
        a = self.pick()
        assert a is not None
        b = self.pick(a.shape)
        assert b is not None
        if self.rng.random() < 0.5:
            count = f"{offsets(a.shape)} % 3 == 1"
            self.define(
                a.shape,
                f"tl.where({count}, {a.name}, {b.name})",
                f"where(number({a.shape}) % 3 == 1, {a.name}, {b.name})",
            )
        else:
            self.define(
                a.shape, f"tl.where({a.name} > 0.1, {a.name}, {b.name})", f"where({a.name} > 0.1, {a.name}, {b.name})"
            )

    def matmul(self) -> None:
        a, b = self.pick((16, 16)), self.pick((16, 16))
        if a is None or b is None:
            return
        self.define((16, 16), f"tl.dot({a.name}, {b.name}, input_precision='ieee') / 16", f"{a.name} @ {b.name} / 16")

    def memory(self) -> None:
        """Through memory and back: what is read afterwards is what was written."""
        a = self.pick()
        assert a is not None
        shift = self.rng.randint(0, 3)
        at = f"scratch + {shift} + {offsets(a.shape)}"
        self.emit(f"tl.store({at}, {a.name})", f"scratch[{shift}:{shift} + {a.name}.numel()] = {a.name}.reshape(-1)")
        if self.rng.random() < 0.7:
            self.define(
                a.shape, f"tl.load({at})", f"scratch[{shift}:{shift} + {a.name}.numel()].reshape({a.shape}).clone()"
            )

    def block(self, depth: int, count: int) -> None:
        """Statements whose variables end with the block."""
        outer = list(self.vars)
        self.indent += "    "
        for _ in range(count):
            self.statement(depth)
        self.inner = [v for v in self.vars if v not in outer]
        self.vars = outer

    def loop(self) -> None:
        depth = len(self.indent) // 4
        carried = [self.pick() for _ in range(self.rng.randint(1, 3))]
        pairs = [(self.fresh(v.shape), v) for v in carried if v is not None]
        for new, old in pairs:
            self.emit(f"{new.name} = {old.name} * 0.5", f"{new.name} = {old.name} * 0.5")
        self.vars += [new for new, _ in pairs]
        bound = self.rng.choice(["n % 4", "3", "flag", "1"])
        self.emit(f"for i{depth} in range({bound}):", f"for i{depth} in range({bound}):")
        self.block(depth, self.rng.randint(1, 3))
        news = [new for new, _ in pairs]
        same = [
            (new, self.rng.choice([v for v in [*self.inner, *news, *self.vars] if v.shape == new.shape]))
            for new in news
        ]
        left, right = (
            ", ".join(new.name for new, _ in same),
            ", ".join(f"{v.name} * 0.75" if self.rng.random() < 0.7 else v.name for _, v in same),
        )
        self.emit(f"{left} = {right}", f"{left} = {right}")
        self.indent = self.indent[:-4]

    def repeat(self) -> None:
        """A ``while`` loop over a scalar and a block, both carried."""
        depth = len(self.indent) // 4
        old = self.pick()
        assert old is not None
        new, count = self.fresh(old.shape), f"w{self.counter}_{depth}"
        self.vars.append(new)
        for text in (f"{new.name} = {old.name} * 0.5", f"{count} = 0", f"while {count} < flag + 1:"):
            self.emit(text, text)
        self.block(depth, self.rng.randint(1, 3))
        chosen = self.rng.choice([v for v in [*self.inner, *self.vars] if v.shape == new.shape])
        for text in (f"{new.name} = {chosen.name} * 0.75 + {old.name} * 0.25", f"{count} += 1"):
            self.emit(text, text)
        self.indent = self.indent[:-4]

    def leave(self) -> None:
        """A return in the middle, which these arguments never take: what follows is a basic block of its own."""
        self.emit("if n > 1000:", "pass")
        self.emit("    return", "pass")

    def branch(self) -> None:
        depth = len(self.indent) // 4
        old = self.pick()
        assert old is not None
        new = self.fresh(old.shape)
        self.emit(f"{new.name} = {old.name} * 0.5", f"{new.name} = {old.name} * 0.5")
        condition = self.rng.choice(["flag > 1", "n > 20", "flag == n"])
        self.emit(f"if {condition}:", f"if {condition}:")
        self.block(depth, self.rng.randint(1, 2))
        chosen = self.rng.choice([v for v in [*self.inner, *self.vars] if v.shape == new.shape])
        self.emit(f"{new.name} = {chosen.name}", f"{new.name} = {chosen.name}")
        self.indent = self.indent[:-4]
        if self.rng.random() < 0.5:
            self.emit("else:", "else:")
            self.block(depth, 1)
            self.emit(f"{new.name} = {new.name} + 0.25", f"{new.name} = {new.name} + 0.25")
            self.indent = self.indent[:-4]
        self.vars.append(new)


def generate(seed: int, *, long_lived: bool = False) -> Program:
    """The kernel of a seed."""
    return Generator(seed, long_lived=long_lived).build()
