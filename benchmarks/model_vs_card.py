"""Times of this project's own kernels and tasks: measured on a GPU, modelled on its card, and how they agree.

    python benchmarks/model_vs_card.py times measured.jsonl                          # on a machine with a GPU
    drkernel sim --gpu h100 --no-data benchmarks/model_vs_card.py -- times modelled.jsonl
    python benchmarks/model_vs_card.py compare measured.jsonl modelled.jsonl [--write PAGE]
    python benchmarks/model_vs_card.py times answers.jsonl --problems DIR [--inductor]    # other people's

One program on both sides: ``triton.testing.do_bench``, its median, of Triton kernels over sizes and configurations and
of the suite's references at their own sizes, by PyTorch. ``--problems`` takes other modules instead: folders, each with
a ``reference.py`` and answers to it (``ModelNew``); ``--inductor`` compiles the references. Rows that a file has
already are left out, so that an interrupted run goes on; ``--part I/N`` is every Nth case, ``--compile`` runs each
kernel once and times nothing. Processes beside each other take turns in timing.
"""

import fcntl
import itertools
import math
import runpy
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import torch
import triton

from extrapolation_kernels import attention, irregular, products, rows
from surveys import keep_row, kept_rows, parser_of, spearman, write_table

WARM_MS, TIMED_MS = 10, 40


@dataclass(frozen=True)
class Case:
    """One call to be timed."""

    family: str
    size: str
    setting: str
    """what a tuner chooses; '' where there is nothing to choose"""
    prepare: Callable[[], Callable[[], Any]]
    """allocates, and returns the call"""

    @property
    def id(self) -> str:
        """What a row is found by."""
        return " ".join(part for part in (self.family, self.size, self.setting) if part)


# ---- Triton kernels


def _rows_of(kernel: Any, height: int, width: int, warps: int, weights: int) -> Callable[[], Any]:
    x = torch.randn(height, width, device="cuda")
    out, extra = torch.empty_like(x), [torch.ones(width, device="cuda")] * weights
    block = triton.next_power_of_2(width)
    return lambda: kernel[(height,)](x, *extra, out, width, BLOCK=block, num_warps=warps)


def _gelu(n: int, block: int, warps: int) -> Callable[[], Any]:
    x = torch.randn(n, device="cuda")
    out = torch.empty_like(x)
    return lambda: rows.gelu_kernel[(triton.cdiv(n, block),)](x, out, n, BLOCK=block, num_warps=warps)


def _looped(kernel: Any, height: int, width: int, block: int, warps: int, whole: bool) -> Callable[[], Any]:
    x = torch.randn(height, width, device="cuda")
    out = torch.empty_like(x) if whole else torch.empty(height, device="cuda")
    return lambda: kernel[(height,)](x, out, width, BLOCK=block, num_warps=warps)


def _columns(height: int, width: int, block: int, across: int, warps: int) -> Callable[[], Any]:
    x, out = torch.randn(height, width, device="cuda"), torch.empty(width, device="cuda")
    grid = (triton.cdiv(width, across),)
    return lambda: rows.column_sum_kernel[grid](x, out, height, width, ROWS=block, COLUMNS=across, num_warps=warps)


def _transpose(side: int, block: int, warps: int) -> Callable[[], Any]:
    x, out = torch.randn(side, side, device="cuda"), torch.empty(side, side, device="cuda")
    grid = (triton.cdiv(side, block), triton.cdiv(side, block))
    return lambda: rows.transpose_kernel[grid](x, out, side, side, BLOCK=block, num_warps=warps)


def _sum(n: int, per: int) -> Callable[[], Any]:
    x, out = torch.randn(n, device="cuda"), torch.zeros(1, device="cuda")
    return lambda: rows.partial_sums_kernel[(triton.cdiv(n, per),)](x, out, n, PER=per, BLOCK=1024)


def _product(
    dtype: torch.dtype, shape: tuple[int, int, int], group: int, tile: tuple[int, int, int], warps: int, stages: int
) -> Callable[[], Any]:
    (m, n, k), (height, width, depth) = shape, tile
    a, b = torch.randn(m, k, device="cuda", dtype=dtype), torch.randn(k, n, device="cuda", dtype=dtype)
    c, grid = torch.empty(m, n, device="cuda"), (triton.cdiv(m, height) * triton.cdiv(n, width),)
    constants = {"GROUP": group, "M": height, "N": width, "K": depth, "num_warps": warps, "num_stages": stages}
    return lambda: products.matmul_kernel[grid](a, b, c, m, n, k, **constants)


def _split(shape: tuple[int, int, int], parts: int) -> Callable[[], Any]:
    m, n, k = shape
    a = torch.randn(m, k, device="cuda", dtype=torch.float16)
    b = torch.randn(k, n, device="cuda", dtype=torch.float16)
    c, grid = torch.zeros(m, n, device="cuda"), (triton.cdiv(m, 64), triton.cdiv(n, 64), parts)
    return lambda: products.split_k_kernel[grid](a, b, c, m, n, k, triton.cdiv(k, parts), M=64, N=64, K=32)


def _attention(heads: int, length: int, causal: bool, height: int, keys: int, warps: int, stages: int) -> Any:
    q, k, v = (torch.randn(heads, length, 64, device="cuda", dtype=torch.float16) for _ in range(3))
    out, grid = torch.empty(heads, length, 64, device="cuda"), (triton.cdiv(length, height), heads)
    constants = {"CAUSAL": causal, "WINDOW": 0, "ROWS": height, "KEYS": keys, "WIDTH": 64}
    chosen = {**constants, "num_warps": warps, "num_stages": stages}
    return lambda: attention.attention_kernel[grid](q, k, v, out, length, 0.125, **chosen)


def _gather(count: int, entries: int, width: int) -> Callable[[], Any]:
    index = torch.randint(0, entries, (count,), device="cuda")
    table, out = torch.randn(entries, width, device="cuda"), torch.empty(count, width, device="cuda")
    block = triton.next_power_of_2(width)
    return lambda: irregular.gather_kernel[(count,)](index, table, out, width, BLOCK=block)


def kernels() -> Iterator[Case]:
    """Triton kernels over sizes and configurations."""
    for power, block, warps in itertools.product((14, 18, 22, 26), (256, 1024, 4096), (1, 4, 8)):
        yield Case("gelu", f"2^{power}", f"{block}, {warps} warps", partial(_gelu, 1 << power, block, warps))
    for height, width in ((4096, 128), (4096, 1024), (4096, 8192), (2048, 32768), (64, 8192)):
        for warps in (1, 4, 8, 16):
            if width // warps <= 8192:
                size, setting = f"{height} x {width}", f"{warps} warps"
                yield Case("softmax", size, setting, partial(_rows_of, rows.softmax_kernel, height, width, warps, 0))
                of_norm = partial(_rows_of, rows.layer_norm_kernel, height, width, warps, 2)
                yield Case("layer norm", size, setting, of_norm)
    for height, width in ((4096, 4096), (128, 65536), (32768, 512)):
        for block, warps in itertools.product((256, 1024, 4096), (4, 8)):
            size, setting = f"{height} x {width}", f"{block}, {warps} warps"
            of_sum = partial(_looped, rows.row_sum_kernel, height, width, block, warps, False)
            yield Case("row sum", size, setting, of_sum)
            of_scan = partial(_looped, rows.scan_kernel, height, width, block, warps, True)
            yield Case("scan", size, setting, of_scan)
    for height, width in ((4096, 4096), (65536, 256)):
        for block, across, warps in itertools.product((16, 64), (32, 128), (4, 8)):
            prepare = partial(_columns, height, width, block, across, warps)
            yield Case("column sum", f"{height} x {width}", f"{block} x {across}, {warps} warps", prepare)
    for side, block, warps in itertools.product((1024, 8192), (16, 32, 64, 128), (4, 8)):
        yield Case("transposition", f"{side}", f"{block}, {warps} warps", partial(_transpose, side, block, warps))
    for n, per in itertools.product((1 << 20, 1 << 26), (4096, 65536)):
        yield Case("atomic sum", f"{n}", f"{per} a program", partial(_sum, n, per))
    yield from _products()
    for length, causal in itertools.product((1024, 4096), (False, True)):
        for height, keys, warps, stages in itertools.product((64, 128), (32, 64, 128), (4, 8), (2, 3)):
            size, setting = f"32 x {length}", f"{height} x {keys}, {warps} warps, {stages} stages"
            family = "causal attention" if causal else "attention"
            yield Case(family, size, setting, partial(_attention, 32, length, causal, height, keys, warps, stages))
    for count, entries, width in ((1 << 16, 1 << 14, 128), (1 << 16, 1 << 20, 128), (1 << 13, 1 << 15, 4096)):
        yield Case("gather", f"{count} of {entries} x {width}", "", partial(_gather, count, entries, width))


def _products() -> Iterator[Case]:
    tiles = ((32, 32, 32), (64, 64, 32), (64, 64, 64), (128, 64, 32), (128, 128, 32), (128, 128, 64), (128, 256, 64))
    for shape in ((512, 512, 512), (2048, 2048, 2048), (8192, 8192, 4096), (64, 4096, 4096)):
        for group, tile, warps, stages in itertools.product((1, 8), tiles, (4, 8), (2, 4)):
            if (group == 8 and shape[0] < 2048) or (warps == 8 and tile[0] < 64):
                continue
            setting = f"{' x '.join(map(str, tile))}, {warps} warps, {stages} stages, groups of {group}"
            prepare = partial(_product, torch.float16, shape, group, tile, warps, stages)
            yield Case("fp16 product", " x ".join(map(str, shape)), setting, prepare)
    for shape in ((1024, 1024, 1024), (4096, 4096, 4096)):
        for tile, warps, stages in itertools.product(tiles[:5], (4, 8), (2, 3)):
            setting = f"{' x '.join(map(str, tile))}, {warps} warps, {stages} stages"
            prepare = partial(_product, torch.float32, shape, 8, tile, warps, stages)
            yield Case("tf32 product", " x ".join(map(str, shape)), setting, prepare)
    for shape, parts in itertools.product(((256, 256, 16384), (64, 1024, 8192)), (1, 4, 16)):
        yield Case("split-K product", " x ".join(map(str, shape)), f"{parts} parts", partial(_split, shape, parts))


# ---- PyTorch


def references() -> Iterator[Case]:
    """The suite's references at their own sizes."""
    from drkernel.tasks.loaders import builtin_tasks

    for task in builtin_tasks():
        yield Case("PyTorch", task.id, "", partial(_reference, task.reference))


def _reference(source: str) -> Callable[[], Any]:
    space: dict[str, Any] = {"__name__": "reference"}
    exec(compile(source, "reference", "exec"), space)
    return _call(space, space["Model"])


def problems(folder: Path, inductor: bool) -> Iterator[Case]:
    """References in folders and the answers beside them; ``inductor``: the references alone, compiled."""
    for reference in sorted(folder.glob("*/reference.py")):
        if inductor:
            yield Case("compiled", reference.parent.name, "", partial(_module, reference, reference, inductor))
            continue
        for path in sorted(reference.parent.glob("*.py")):
            family = "reference" if path == reference else "answer"
            name = reference.parent.name if path == reference else f"{reference.parent.name} {path.stem}"
            yield Case(family, name, "", partial(_module, reference, path, False))


def _module(reference: Path, path: Path, inductor: bool) -> Callable[[], Any]:
    asked, given = (runpy.run_path(str(one), run_name="problem") for one in (reference, path))
    if inductor:
        torch._dynamo.reset()
    return _call(asked, given.get("ModelNew") or given["Model"], torch.compile if inductor else lambda model: model)


def _call(asked: dict[str, Any], made: Any, wrapped: Callable[[Any], Any] = lambda model: model) -> Callable[[], Any]:
    """The call of a module with a problem's inputs, everything on the card."""
    with torch.device("cuda"):
        torch.manual_seed(0)
        inputs = [value.cuda() if isinstance(value, torch.Tensor) else value for value in asked["get_inputs"]()]
        chosen = asked.get("get_init_inputs", list)()
        match chosen:
            case [list() as args, dict() as kwargs]:
                model = made(*args, **kwargs)
            case dict():
                model = made(**chosen)
            case _:
                model = made(*chosen)
    model = wrapped(model.cuda().eval())
    return lambda: model(*inputs)


# ---- both


def times(path: Path, cases: Iterator[Case], part: str, only: str | None, compile_only: bool) -> None:
    """Time every case that ``path`` lacks."""
    index, parts = map(int, part.split("/"))
    done = {row["id"] for row in kept_rows(path)}
    chosen = [case for case in cases if case.id not in done]
    chosen = [case for case in chosen if only is None or only in case.id][index::parts]
    for number, case in enumerate(chosen):
        row: dict[str, Any] = {"id": case.id, "family": case.family, "size": case.size, "setting": case.setting}
        try:
            row["seconds"] = _seconds(case, compile_only)
        except Exception as error:  # a configuration that does not fit a card is a row, too
            row["error"] = f"{type(error).__name__}: {str(error)[:200]}"
        finally:
            torch.cuda.empty_cache()
        if not compile_only:
            keep_row(path, {**row, "card": torch.cuda.get_device_name()})
            print(f"{number + 1}/{len(chosen)} {case.id}: {row.get('seconds', row.get('error'))}", flush=True)


def _seconds(case: Case, compile_only: bool) -> float:
    """Of one call; with ``compile_only`` of none, after one."""
    with torch.no_grad():
        call = case.prepare()
        call()
        torch.cuda.synchronize()
        if compile_only:
            return math.nan
        with Path(tempfile.gettempdir(), "timing").open("w") as turn:
            fcntl.flock(turn, fcntl.LOCK_EX)
            return 1e-3 * triton.testing.do_bench(call, WARM_MS, TIMED_MS, return_mode="median")


def compare(measured: Path, modelled: Path, page: Path | None) -> str:
    """The table by family."""
    both = {row["id"]: [row] for row in kept_rows(measured) if "seconds" in row}
    for row in kept_rows(modelled):
        if "seconds" in row and row["id"] in both:
            both[row["id"]].append(row)
    pairs = [(a, b) for a, b in (pair for pair in both.values() if len(pair) == 2)]
    table = [["family", "cases", "median error", "within 25%", "modelled / measured", "Spearman", "pick / best"]]
    families = list(dict.fromkeys(a["family"] for a, _ in pairs))
    for family in [*families, "all"]:
        of = [(a, b) for a, b in pairs if family in (a["family"], "all")]
        logs = [math.log(b["seconds"] / a["seconds"]) for a, b in of]
        rank = spearman([a["seconds"] for a, _ in of], [b["seconds"] for _, b in of])
        picks = list(_picks(of))
        table.append([
            family, str(len(of)), f"{median(map(abs, logs)):.3f}",
            f"{sum(abs(x) < math.log(1.25) for x in logs) / len(of):.0%}", f"{math.exp(median(logs)):.2f}",
            f"{rank:.3f}", f"{median(picks):.2f}" if picks else "",
        ])  # fmt: skip
    rows_table = [["case", "measured us", "modelled us"]]
    rows_table += [[a["id"], f"{a['seconds'] * 1e6:.2f}", f"{b['seconds'] * 1e6:.2f}"] for a, b in pairs]
    if page is not None:
        write_table(page.with_suffix(".csv"), rows_table)
        write_table(page.with_name(f"{page.stem}_families.csv"), table)
    return "\n".join("| " + " | ".join(row) + " |" for row in table)


def _picks(pairs: list[tuple[dict[str, Any], dict[str, Any]]]) -> Iterator[float]:
    """For each kernel and size: the measured time of the setting that the model picks over the best one's."""
    groups: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for a, b in pairs:
        groups.setdefault((a["family"], a["size"]), []).append((b["seconds"], a["seconds"]))
    for group in groups.values():
        if len(group) > 1:
            yield min(group)[1] / min(seconds for _, seconds in group)


def main() -> int:
    """Time or compare."""
    parser = parser_of(__doc__)
    parser.add_argument("do", choices=("times", "compare"))
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("--part", default="0/1")
    parser.add_argument("--only", help="cases whose name contains this")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--problems", type=Path, help="a folder of folders")
    parser.add_argument("--inductor", action="store_true")
    parser.add_argument("--write", type=Path, help="with compare: write the rows beside this page")
    options = parser.parse_args()
    if options.do == "times":
        if options.problems is not None:
            cases = problems(options.problems, options.inductor)
        else:
            cases = kernels() if options.compile else itertools.chain(kernels(), references())
        times(options.files[0], cases, options.part, options.only, options.compile)
    else:
        print(compare(options.files[0], options.files[1], options.write))
    return 0


if __name__ == "__main__":
    sys.exit(main())
