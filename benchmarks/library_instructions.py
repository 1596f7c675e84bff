"""Machine instructions of library functions in compiled kernels, beside the table that launches are priced by.

    python benchmarks/library_instructions.py [--arch 80] [NAME ...]

Each function is compiled by Triton and its ptxas for one element a thread; counted are the instructions beyond those of
a kernel that only copies. A function with a slow path (a branch, or a call) counts both ways, so that its figure is an
upper bound: the table's is that of the path that ordinary arguments take. Needs no GPU.
"""

import re
import subprocess
import tempfile
from pathlib import Path

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from drkernel.sim.cost.instructions import instructions
from surveys import parser_of
from ttir_executor.lower.plan import walk
from ttir_executor.ttir.parser import parse_ttir

TOOLS = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"
SLOW = ("BRA", "CALL", "BSSY")
"""instructions that only functions with a slow path have"""
CASES = {
    "pow(x, 2)": "libdevice.pow(x, 2)", "pow(x, 3)": "libdevice.pow(x, 3)", "pow(x, 10)": "libdevice.pow(x, 10)",
    "pow(x, -2)": "libdevice.pow(x, -2)", "pow(x, 2.0)": "libdevice.pow(x, 2.0)", "pow(x, y)": "libdevice.pow(x, x)",
    "pow(x, int)": "libdevice.pow(x, at)", "llrint": "libdevice.llrint(x)",
    "llround": "libdevice.llround(x)", "rint": "libdevice.rint(x)", "round": "libdevice.round(x)",
    "nearbyint": "libdevice.nearbyint(x)", "exp": "tl.exp(x)", "erf": "tl.erf(x)", "tanh": "libdevice.tanh(x)",
    "sqrt": "tl.sqrt(x)", "log": "tl.log(x)", "log1p": "libdevice.log1p(x)", "div": "x / (x + 1.0)",
    "isnan": "libdevice.isnan(x)", "signbit": "libdevice.signbit(x)", "float2int_rn": "libdevice.float2int_rn(x)",
    "rsqrt": "tl.rsqrt(x)", "asin": "libdevice.asin(x)", "atan": "libdevice.atan(x)", "sin": "tl.sin(x)",
}  # fmt: skip
SOURCE = """
@triton.jit
def kernel(source, target):
    at = tl.program_id(0) * 128 + tl.arange(0, 128)
    x = tl.load(source + at)
    tl.store(target + at, ({body}).to(tl.float32))
"""


def compiled(body: str, arch: int, folder: Path) -> tuple[str, str]:
    """(TTIR, SASS) of a kernel with this body."""
    path = folder / "kernel.py"
    path.write_text(
        "import triton\nimport triton.language as tl\nfrom triton.language.extra import libdevice\n"
        + SOURCE.format(body=body)
    )
    names: dict[str, object] = {"__name__": "kernel", "__file__": str(path)}
    exec(compile(path.read_text(), str(path), "exec"), names)
    source = ASTSource(names["kernel"], {"source": "*fp32", "target": "*fp32"})  # type: ignore[arg-type]
    made = triton.compile(source, target=GPUTarget("cuda", arch, 32), options={"num_warps": 4})
    cubin = folder / "kernel.cubin"
    cubin.write_bytes(made.asm["cubin"])
    shown = subprocess.run([TOOLS / "cuobjdump", "-sass", cubin], capture_output=True, text=True, check=True)
    return made.asm["ttir"], shown.stdout


def mnemonics(sass: str) -> list[str]:
    """The instructions up to the last EXIT, in order."""
    found = re.findall(r"/\*[0-9a-f]{4}\*/\s+(?:@!?U?P\d\s+)?([A-Z][A-Z0-9.]*)", sass)
    last = max(index for index, name in enumerate(found) if name.startswith("EXIT"))
    return found[: last + 1]


def tabled(ttir: str) -> float:
    """Instructions of one element by the table."""
    function = parse_ttir(ttir)
    return sum(sum(instructions(op).values()) for op in walk(function.body) if op.results)


def main() -> None:
    """Print one row a function."""
    parser = parser_of(__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(CASES))
    parser.add_argument("--arch", type=int, default=80)
    options = parser.parse_args()
    chosen = {name: CASES[name] for name in options.names or CASES}
    with tempfile.TemporaryDirectory() as folder:
        plain, copied = compiled("x", options.arch, Path(folder))
        base, other = len(mnemonics(copied)), tabled(plain)
        for name, body in chosen.items():
            ttir, sass = compiled(body, options.arch, Path(folder))
            found = mnemonics(sass)
            slow = " with a slow path" if any(one.startswith(SLOW) for one in found) else ""
            print(
                f"{name:14s} {len(found) - base:4d} compiled{slow}, {tabled(ttir) - other:g} by the table", flush=True
            )


if __name__ == "__main__":
    main()
