"""How well modelled throughputs agree with figures that others published for textbook kernels and library calls.

    python benchmarks/model_vs_figures.py [--only WORD] [--page docs/results/figures.md]

Every row is one figure of a public source (issue, pull request or paper): its card, what ran, the throughput. What ran
is rebuilt from its description (``figures/kernels.py``) and modelled on a device without data, tuned over the usual
tiles where its authors tuned. Figures at sizes that their own host bounded are left out.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

from drkernel import sim
from drkernel.sim.gpu.datafree.records import DataFree
from figures import kernels
from surveys import cells, parser_of, write_table

ISSUES = {
    "triton 3551": "triton-lang/triton issue 3551",
    "triton 7085": "triton-lang/triton issue 7085",
    "triton 2491": "triton-lang/triton issue 2491",
    "triton 5433": "triton-lang/triton issue 5433",
    "triton 2339": "triton-lang/triton issue 2339",
    "triton 319": "triton-lang/triton issue 319",
    "triton 10060": "triton-lang/triton pull request 10060",
    "benchmark 2391": "pytorch/benchmark pull request 2391",
    "FA3": "FlashAttention-3's paper, forward figures on H100 SXM (arXiv 2407.08608)",
    "OLMo 258": "allenai/OLMo issue 258",
    "ao 4247": "pytorch/ao pull request 4247",
}


@dataclass(frozen=True)
class Figure:
    """One published throughput."""

    card: str
    run: Callable[..., Any]
    sizes: tuple[object, ...]
    published: float
    source: str
    chosen: bool = False
    """a constant of the model was chosen by looking at it"""

    @property
    def work(self) -> tuple[float, str]:
        """(operations or bytes of one call, unit of the figure)."""
        if "attention" in self.run.__name__:
            batch, heads, length, dim, *causal = self.sizes
            return 4.0 * math.prod((batch, heads, length, length, dim)) * (0.5 if causal else 1.0), "TFLOP/s"  # type: ignore[arg-type]
        if "matmul" in self.run.__name__:
            return 2.0 * math.prod(self.sizes[:3]), "TFLOP/s"  # type: ignore[arg-type]
        return 4.0 * math.prod(self.sizes), "TB/s"  # type: ignore[arg-type]  # both dtypes have two bytes


def products(card: str, run: Callable[..., Any], source: str, *figures: tuple[int, float], how: tuple[str, ...] = (),
             chosen: bool = False) -> list[Figure]:  # fmt: skip
    """Figures of square products."""
    return [Figure(card, run, (size, size, size, *how), value, source, chosen) for size, value in figures]


FIGURES = [
    *products("a100", kernels.run_matmul, "triton 7085", (1024, 97.5)),
    *products("a100", kernels.run_matmul, "triton 3551", (2816, 233.2), (3072, 230.2), (3200, 244.3), chosen=True),
    *products(
        "a100",
        kernels.run_torch_matmul,
        "triton 3551",
        (1024, 104.9),
        (1536, 176.9),
        (2048, 233.0),
        (2560, 244.5),
        (3072, 229.2),
        (3200, 244.3),
        chosen=True,
    ),
    *products(
        "a100",
        kernels.run_matmul,
        "triton 2491",
        (1024, 12.3),
        (2048, 17.1),
        (3072, 17.5),
        how=("float32", "ieee"),
        chosen=True,
    ),
    *products(
        "a100", kernels.run_torch_matmul, "triton 2491", (1024, 16.0), (2048, 17.6), (3072, 18.0), how=("float32",)
    ),
    *products(
        "a100", kernels.run_matmul, "triton 5433", (1024, 52.4), (1536, 78.6), (2048, 92.2), how=("float32", "tf32")
    ),
    *products("a100", kernels.run_torch_matmul, "triton 10060", (1024, 14.9), (1792, 16.2), how=("float64",)),
    *products("rtx3090", kernels.run_matmul, "triton 319", (1024, 52.4), (1536, 64.9)),
    *products("rtx3090", kernels.run_torch_matmul, "triton 319", (1024, 53.8), (1536, 65.5)),
    Figure("h100", kernels.run_torch_matmul, (2048, 1024, 1024), 243.1, "triton 2339"),
    Figure("h100", kernels.run_torch_matmul, (2048, 2048, 2048), 515.2, "triton 2339"),
    Figure("h100", kernels.run_torch_matmul, (2048, 4096, 4096), 613.7, "triton 2339"),
    Figure("h100", kernels.run_torch_matmul, (2048, 8192, 8192), 721.6, "triton 2339"),
    Figure("h100", kernels.run_attention, (16, 16, 1024, 128), 389.7, "benchmark 2391", True),
    Figure("h100", kernels.run_attention, (4, 16, 4096, 128), 458.4, "benchmark 2391", True),
    Figure("h100", kernels.run_attention, (32, 32, 512, 64), 234.0, "FA3"),
    Figure("h100", kernels.run_attention, (4, 16, 4096, 128, True), 353.0, "FA3"),
    Figure("h100", kernels.run_torch_attention, (32, 16, 512, 128), 309.0, "FA3", True),
    Figure("h100", kernels.run_torch_attention, (4, 16, 4096, 128), 368.0, "FA3", True),
    Figure("h100", kernels.run_torch_attention, (4, 16, 4096, 128, True), 319.0, "FA3"),
    Figure("a100", kernels.run_layer_norm, (4096, 4096), 1.130, "OLMo 258"),
    Figure("a100", kernels.run_layer_norm, (4096, 8192), 1.380, "OLMo 258"),
    Figure("a100", kernels.run_torch_layer_norm, (4096, 4096), 0.936, "OLMo 258"),
    Figure("a100", kernels.run_torch_layer_norm, (4096, 8192), 0.950, "OLMo 258"),
    Figure("b200", kernels.run_copy, (2048, 4096), 33.55 / 12.128, "ao 4247"),
    Figure("b200", kernels.run_copy, (2048, 14336), 117.4 / 24.576, "ao 4247", True),
    Figure("b200", kernels.run_copy, (2048, 28672), 234.9 / 42.848, "ao 4247", True),
]


def modelled(figure: Figure) -> float:
    """The model's throughput in the figure's unit."""
    for tuned in (kernels.matmul_kernel, kernels.attention_kernel):
        tuned.cache.clear()  # the tuner's choice holds for one card
    with sim.device(figure.card, checks="off", data_free=DataFree()) as device:
        figure.run(*figure.sizes)
        device.profile()
        device.reset_counters()
        figure.run(*figure.sizes)
        return figure.work[0] / device.profile().elapsed_seconds / 1e12


def row(figure: Figure, found: float) -> str:
    """One line of the table."""
    sizes = " × ".join("causal" if size is True else str(size) for size in figure.sizes)
    name = figure.run.__name__.removeprefix("run_").replace("_", " ")
    name = name if name.startswith("torch") else f"Triton {name}"
    where = ISSUES[figure.source] + (" (chosen by)" if figure.chosen else "")
    return (
        f"| {figure.card} | {name} | {sizes} | {figure.published:.3g} "
        f"| {found:.3g} | {found / figure.published:.2f} | {figure.work[1]} | {where} |"
    )


def summary(done: list[tuple[Figure, float]]) -> list[str]:
    """Median and largest error, of all and of those that no constant was chosen by."""
    lines = []
    for label, kept in (("all", done), ("no constant chosen by them", [one for one in done if not one[0].chosen])):
        errors = sorted(abs(math.log(found / figure.published)) for figure, found in kept)
        if errors:
            error = f"median error (log) {median(errors):.2f}, largest {errors[-1]:.2f}"
            lines.append(f"- {label}: {len(errors)} figures, {error}")
    return lines


def page(done: list[tuple[Figure, float]], table: str) -> str:
    """The page's text; ``table``: the line that shows the figures."""
    everything, held_out = (line.removeprefix("- ") for line in summary(done))
    return f"""# The model against published figures

Do modelled throughputs agree with those that others published? **{everything}; {held_out}.**

`python benchmarks/model_vs_figures.py --page docs/results/figures.md`, {datetime.now(UTC).date().isoformat()}.
{(__doc__ or "").split(chr(10) * 2)[2].strip()}

{table}
"""


def main() -> int:
    """Print the table as it grows, and write the page."""
    parser = parser_of(__doc__)
    parser.add_argument("--only", default="", help="card, kernel or source that a row has to name")
    parser.add_argument("--page", type=Path, help="write the page here")
    options = parser.parse_args()
    lines = [
        "| card | what | sizes | published | modelled | ratio | unit | source |",
        "| --- | --- | --- | ---: | ---: | ---: | --- | --- |",
    ]
    print("\n".join(lines))
    done: list[tuple[Figure, float]] = []
    for figure in FIGURES:
        if options.only in f"{figure.card} {figure.run.__name__} {figure.source}":
            done.append((figure, modelled(figure)))
            lines.append(row(*done[-1]))
            print(lines[-1], flush=True)
    print("\n".join(summary(done)))
    if options.page:
        table = write_table(options.page.with_suffix(".csv"), cells(lines))
        options.page.write_text(page(done, table), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
