"""CUDA C++ embedded in Python: ``load_inline`` and similar. Real GPUs only; a trace shows what was launched.

A kernel of the trace is the candidate's own when no operator of PyTorch launched it and its name is that of a
``__global__`` function in one of the source's strings. A call into cuBLAS matches neither and does not count.
"""

import ast
import re
from collections.abc import Sequence

from drkernel.gym.languages.base import Language, TracedKernel

_GLOBAL = re.compile(r"__global__\b(?P<between>[^;{]*?)\b(?P<name>[A-Za-z_]\w*)\s*\(")
_ATTRIBUTE = re.compile(r"__launch_bounds__\s*\([^)]*\)|__cluster_dims__\s*\([^)]*\)|/\*.*?\*/|//[^\n]*", re.DOTALL)


def global_functions(source: str) -> set[str]:
    """Names of the ``__global__`` functions in the string constants of a Python source."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return set()
    texts = [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    return {found["name"] for text in texts for found in _GLOBAL.finditer(_ATTRIBUTE.sub(" ", text))}


def base_name(kernel: str) -> str:
    """'void ns::scale<float, 4>(float const*, int)' -> 'scale'."""
    text, depth, kept = kernel.replace("(anonymous namespace)", ""), 0, []
    for char in text:
        depth += char in "<("
        if depth == 0:
            kept.append(char)
        depth -= char in ">)"
    return re.split(r"[\s:*&]+", "".join(kept).strip())[-1]


def own_kernels(source: str, kernels: Sequence[TracedKernel]) -> list[TracedKernel]:
    """The kernels of a trace that ``source`` defines."""
    defined = global_functions(source)
    return [kernel for kernel in kernels if not kernel.of_pytorch and base_name(kernel.name) in defined]


LANGUAGE = Language(
    name="cuda",
    title="CUDA C++",
    roots=(
        "torch.utils.cpp_extension.load_inline", "torch.utils.cpp_extension.load", "torch.cuda._compile_kernel",
        "cupy.RawKernel", "cupy.RawModule",
    ),
    rule="The computation runs in CUDA C++ kernels of your own (`__global__`), compiled by "
    "`torch.utils.cpp_extension.load_inline`.",
    simulated=False,
    told_by="trace",
    programs=("nvcc", "ninja"),
    compile_s=120.0,
    own=own_kernels,
)  # fmt: skip
