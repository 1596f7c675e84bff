"""What NVIDIA's own compiler makes of kernels whose accumulators spill."""

import re
import subprocess
from pathlib import Path

import pytest
import triton

from accumulators import H200, MOVED, product_of
from drkernel.sim.target import text_for_target


def moved_in_loops(ptx: str, folder: Path) -> int:
    """Words that one pass of the innermost loops in ptxas's code for this text moves to and from local memory."""
    tools = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"
    (folder / "kernel.ptx").write_text(ptx)
    subprocess.run(
        [tools / "ptxas", "-arch=sm_90a", folder / "kernel.ptx", "-o", folder / "kernel.cubin"],
        check=True,
        capture_output=True,
    )
    listed = subprocess.run(
        [tools / "cuobjdump", "-sass", folder / "kernel.cubin"], check=True, capture_output=True, text=True
    )
    code = [(int(at, 16), text) for at, text in re.findall(r"/\*([0-9a-f]{4,6})\*/\s+(.*?);", listed.stdout)]
    jumps = ((at, re.search(r"\bBRA\b.*(0x[0-9a-f]+)", text)) for at, text in code)
    loops = [(int(found.group(1), 16), at) for at, found in jumps if found and int(found.group(1), 16) < at]
    width = {".128": 4, ".64": 2}
    return sum(
        next((words for mark, words in width.items() if mark in text), 1)
        for at, text in code
        if re.search(r"\b(STL|LDL)\b", text) and any(low <= at <= high for low, high in loops)
    )


@pytest.mark.parametrize(
    ("rows", "cols", "warps"), [pytest.param(*case, marks=() if case[1] == 128 else pytest.mark.slow) for case in MOVED]
)
def test_what_accumulators_spill_is_what_is_recorded(rows: int, cols: int, warps: int, tmp_path: Path) -> None:
    """ptxas keeps 128 accumulators a thread, and moves some of 256 and most of 512 in every round."""
    found = moved_in_loops(text_for_target(H200, product_of(rows, cols), {"num_warps": warps}, "ptx"), tmp_path)
    recorded = MOVED[rows, cols, warps]
    assert 0.9 * recorded <= found <= 1.1 * recorded  # another Triton's ptxas may differ a little
