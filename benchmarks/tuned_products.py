"""Where the measured winners of a tuner lie among modelled times, and how far the model's pick is ahead of them.

    git clone https://github.com/sgl-project/sglang DIR       # or vLLM, or either's unpacked wheel
    python benchmarks/tuned_products.py DIR [--rows FILE] [--others N]

Both publish, for block-scaled products on several cards, the fastest of 640 configurations a size. Of each file one
size, drawn by the file's name, is modelled with its winner and ``--others`` configurations drawn from the same space;
their own kernels run on a device without data. No constant is chosen here. An interrupted run goes on.
"""

import ast
import hashlib
import json
import random
import re
import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any

from surveys import forked, keep_row, kept_rows, markdown, parser_of, quantile

CARDS = {"A100-SXM4-80GB": "a100", "H100_80GB_HBM3": "h100", "H200": "h200", "B200": "b200", "L40S": "l40s"}
FILE = re.compile(r"N=(\d+),K=(\d+),device_name=NVIDIA_([^,]+),dtype=(fp8|int8)_w8a8,block_shape=\[128, ?128\]\.json")
HEAD = "import triton\nimport triton.language as tl\n\n\n@triton.jit\n"
SPACE = {
    "BLOCK_SIZE_M": (16, 32, 64, 128, 256), "BLOCK_SIZE_N": (32, 64, 128, 256), "BLOCK_SIZE_K": (128,),
    "GROUP_SIZE_M": (1, 16, 32, 64), "num_warps": (4, 8), "num_stages": (2, 3, 4, 5),
}  # fmt: skip
"""what the tuner of both tries"""


def kernel_of(folder: Path, kind: str, scratch: str) -> Any:
    """Their kernel by itself, in a file in ``scratch``: the modules around it want a GPU."""
    name = f"_w8a8_block_{kind}_matmul"
    for path in sorted(folder.rglob(f"{kind}_*.py")):
        text = path.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(text)) if f"def {name}(" in text else ():
            if isinstance(node, ast.FunctionDef) and node.name == name:
                place = Path(scratch, f"{kind}_product.py")
                place.write_text(HEAD + (ast.get_source_segment(text, node) or ""), encoding="utf-8")
                sys.path.insert(0, scratch)
                return getattr(__import__(place.stem), name)
    raise SystemExit(f"no kernel {name} below {folder}")


def products(folder: Path) -> Iterator[tuple[str, str, str, tuple[int, int, int], dict[str, int]]]:
    """(file, card, dtype, (M, N, K), the winner), of each file one size."""
    for path in sorted(folder.rglob("N=*.json"), key=lambda path: hashlib.sha256(path.name.encode()).digest()):
        found = FILE.fullmatch(path.name)
        if found and found[3] in CARDS:
            winners = json.loads(path.read_text(encoding="utf-8"))
            rows = random.Random(path.name).choice([size for size in winners if size.isdigit()])
            yield path.name, CARDS[found[3]], found[4], (int(rows), int(found[1]), int(found[2])), winners[rows]


def times(
    folder: Path, card: str, kind: str, shape: tuple[int, int, int], some: list[dict[str, int]]
) -> dict[str, Any]:
    """Modelled seconds of each configuration; None where it does not fit the card."""
    import torch
    from triton.runtime.errors import OutOfResources

    from drkernel import sim
    from drkernel.sim.gpu.datafree import DataFree

    (m, n, k), found = shape, list[float | None]()
    with (
        tempfile.TemporaryDirectory() as scratch,
        sim.device(card, checks="off", data_free=DataFree()) as device,
        torch.device("cuda"),
    ):
        kernel = kernel_of(folder, kind, scratch)
        dtype = torch.int8 if kind == "int8" else torch.float8_e4m3fn
        a, b, c = (torch.empty(s, dtype=t) for s, t in (((m, k), dtype), ((n, k), dtype), ((m, n), torch.float16)))
        scales = torch.empty(m, -(-k // 128)), torch.empty(-(-n // 128), -(-k // 128))
        strides = [*a.stride(), *reversed(b.stride()), *c.stride(), *scales[0].stride(), *reversed(scales[1].stride())]
        for one in some:
            grid = (-(-m // one["BLOCK_SIZE_M"]) * -(-n // one["BLOCK_SIZE_N"]),)
            try:
                device.reset_counters()
                kernel[grid](a, b, c, *scales, m, n, k, 128, 128, *strides, **one)
                found.append(device.profile().total_seconds)
            except OutOfResources:  # too much shared memory, or too many registers
                found.append(None)
    return {"seconds": found}


def main() -> None:
    """Model what is missing, then report."""
    parser = parser_of(__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rows", type=Path, default=Path("runs/tuned_products.jsonl"))
    parser.add_argument("--others", type=int, default=60)
    options = parser.parse_args()
    every = [dict(zip(SPACE, values, strict=True)) for values in product(*SPACE.values())]
    for file, card, kind, shape, winner in products(options.folder):
        if file not in {row["file"] for row in kept_rows(options.rows)}:
            some = [winner, *random.Random(file).sample([one for one in every if one != winner], options.others)]
            work = partial(times, options.folder, card, kind, shape, some)
            row = {"file": file, "card": card, "shape": shape, "configurations": some, **forked(work, 3600, 1 << 36)}
            keep_row(options.rows, row)
            print(card, *shape, row.get("error", ""), flush=True)
    groups: dict[str, list[tuple[float, float]]] = {}
    for row in kept_rows(options.rows):
        first, *others = row.get("seconds", [None])
        fit = [seconds for seconds in others if seconds is not None]
        if first is not None and fit:
            place = sum((seconds > first) + 0.5 * (seconds == first) for seconds in fit) / len(fit)
            for group in (row["card"], "all"):
                groups.setdefault(group, []).append((place, first / min([first, *fit])))
    table = [["", "products", "winner's place (median)", "p10", "winner over pick (median)", "p90"]]
    for group, of in sorted(groups.items(), key=lambda item: item[0] == "all"):
        places, ahead = zip(*of, strict=True)
        figures = median(places), quantile(places, 0.1), median(ahead), quantile(ahead, 0.9)
        table.append([group, str(len(of)), *(f"{one:.2f}" for one in figures)])
    print(*markdown(table, 5), sep="\n")


if __name__ == "__main__":
    main()
