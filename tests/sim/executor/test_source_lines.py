"""Where a launch's modelled time goes: lines against what the source says, with data, without, and from a sample."""

from pathlib import Path

import pytest

from drkernel.report.sim import page
from drkernel.sim.gpu.datafree import DataFree, SampleSettings
from drkernel.sim.script import run_script
from drkernel.sim.sweep import with_settings
from drkernel.view import duration
from places import KIT, ROOT

SCRIPT = KIT / "source_lines.py"
TEXT = SCRIPT.read_text().splitlines()
HELPER, CALL, PLAIN, STORE = (
    next(k for k, line in enumerate(TEXT, 1) if part in line)
    for part in ("return tl.load", "a = every_other", "b = tl.load", "tl.store")
)
N = 1 << 20


def detail_at(n, **options):
    report = run_script(SCRIPT, [str(n)], **options)
    assert report.error is None
    (row,) = report.launches
    return report, row.detail, {line.line: line for line in row.detail.lines}


@pytest.mark.parametrize(
    ("options", "near"),
    [
        ({}, 0.0),
        ({"checks": "full"}, 0.0),
        ({"data_free": DataFree()}, 0.0),
        ({"data_free": DataFree(sample=SampleSettings(full_sectors=1e4, sample_sectors=1e4))}, 0.01),
    ],
)
def test_lines_say_what_the_source_asks_for(options, near):
    report, detail, lines = detail_at(N, **options)
    strided, plain, store = lines[HELPER], lines[PLAIN], lines[STORE]
    assert strided.bytes_asked == pytest.approx(8 * N, rel=near) and strided.bytes_used == pytest.approx(
        4 * N, rel=near
    )
    assert [line.bytes_asked for line in (plain, store)] == pytest.approx([4 * N] * 2, rel=near)
    assert strided.sectors_per_request == pytest.approx(8, rel=near) == 2 * strided.sectors_needed
    assert plain.sectors_per_request == pytest.approx(4, rel=near) and plain.coalesced_seconds is None
    assert [Path(caller).name for caller in strided.callers] == [f"{SCRIPT.name}:{CALL}"]
    assert strided.text == TEXT[HELPER - 1].strip()
    assert store.operations == 2 * N and strided.operations == plain.operations == 0  # exp and the product
    assert detail.programs == N // 1024 and report.kernels[0].detail is detail
    binding = max(seconds for name, seconds in detail.limits.items() if name != "fixed")
    assert binding == detail.limits["l2"]  # by bytes asked for: 2 to 1 to 1
    assert strided.share == pytest.approx(2 * plain.share, rel=0.02) == 2 * store.share
    assert sum(line.share for line in detail.lines) == pytest.approx(binding / detail.seconds, rel=0.01)


def test_masked_lanes_ask_for_nothing():
    _, _, lines = detail_at(1000)
    assert lines[PLAIN].bytes_used == lines[PLAIN].bytes_asked == 4000


FOUR_BITS = """
import torch, triton, triton.language as tl

@triton.jit
def product(x, scale, out):
    at, half, two = tl.arange(0, 64), tl.arange(0, 32), tl.arange(0, 2)
    left, right = tl.load(x + at[:, None] * 32 + half), tl.load(x + half[:, None] * 64 + at)
    scales = tl.load(scale + at[:, None] * 2 + two)
    tl.store(out + at[:, None] * 64 + at, tl.dot_scaled(left, scales, "e2m1", right, scales, "e2m1"))

x, scale = (torch.zeros(64, n, dtype=torch.uint8, device="cuda") for n in (32, 2))
product[(1,)](x, scale, torch.empty(64, 64, device="cuda"))
"""


def test_products_of_four_bits_are_told_on_cards_without_their_unit(tmp_path):
    script = tmp_path / "four_bits.py"
    script.write_text(FOUR_BITS)
    assert {run_script(script, gpu=gpu).kernels[0].detail.unit for gpu in ("a100", "h100")} == {"tensor_fp4"}


def test_what_less_of_a_line_would_save_comes_from_the_model(tmp_path):
    """A transposed read asks for eight times the sectors: without them the launch is faster, and the page says so."""
    script = tmp_path / "transposed.py"
    script.write_text(
        "import torch, triton, triton.language as tl\n"
        "@triton.jit\n"
        "def transpose(x, out, n, B: tl.constexpr):\n"
        "    i = tl.program_id(0) * B + tl.arange(0, B)\n"
        "    j = tl.program_id(1)\n"
        "    tl.store(out + j * n + i, tl.load(x + i * n + j))\n"
        "x = torch.zeros(4096, 4096, device='cuda')\n"
        # programs large enough that sectors are the limit, not how fast programs start
        "transpose[(4, 4096)](x, torch.empty_like(x), 4096, B=1024)\n"
    )
    report = run_script(script, data_free=DataFree())
    detail = report.launches[0].detail
    (line,) = [line for line in detail.lines if line.bytes_asked]
    assert line.line == 6 and line.sectors_per_request > 8
    assert line.coalesced_seconds < 0.9 * detail.seconds
    shown = page(report)
    assert "sectors a request where" in shown and ">transpose<" in shown
    assert "src=" not in shown


def test_the_story_of_the_page_is_what_the_code_says():
    """docs/sim.md tells of two scripts and a sweep: each of its times is today's."""
    root = ROOT
    story = (root / "docs" / "sim.md").read_text().partition("## The command")[0]
    slow, better = (
        run_script(root / "examples" / "sim" / name, data_free=DataFree())
        for name in ("column_sum.py", "column_sum_blocks.py")
    )
    best = root / "examples" / "sim" / "column_sum_blocks.py"
    texts = [with_settings(best.read_text(), {"ROWS": rows, "WIDTH": width}) for rows, width in ((128, 32),)]
    times = [slow.kernels[0].seconds, slow.kernels[0].detail.lines[0].coalesced_seconds, better.kernels[0].seconds]
    times += [run_script(best, data_free=DataFree(), source=text).kernels[0].seconds for text in texts]
    times.append(next(row.seconds for row in slow.profile.rows if row.name == "aten.sum"))
    for seconds in times:
        assert duration(seconds) in story
