"""Traces for Perfetto: what a run did and when, on tracks by who did it."""

import itertools
import json
import re
from pathlib import Path

import pytest

from drkernel.report.sim import page, trace_of_run, write_trace
from drkernel.sim.script import ScriptReport, run_script

SCRIPT = """
import torch, triton, triton.language as tl

@triton.jit
def double(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, 2 * tl.load(x + at, at < n), at < n)

x = torch.ones(5000).cuda()
out = torch.empty_like(x)
for _ in range(3):
    double[(5,)](x, out, 5000, BLOCK=1024)
y = (out + x).cpu()
"""


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> ScriptReport:
    script = tmp_path_factory.mktemp("trace") / "script.py"
    script.write_text(SCRIPT)
    return run_script(script, gpu="a100", trace=True)


@pytest.fixture(scope="module")
def trace(report: ScriptReport, tmp_path_factory: pytest.TempPathFactory) -> dict:
    path: Path = tmp_path_factory.mktemp("written") / "trace.json"
    write_trace(path, trace_of_run(report))
    return json.loads(path.read_text())


def _bars(trace: dict) -> dict[str, list[dict]]:
    """The bars of each track, by the name that Perfetto shows for it."""
    events = trace["traceEvents"]
    tracks = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
    bars: dict[str, list[dict]] = {name: [] for name in tracks.values()}
    for event in events:
        if event["ph"] == "X":
            bars[tracks[event["pid"], event["tid"]]].append(event)
    return bars


def test_kernels_operators_and_copies_have_tracks_of_their_own(trace: dict) -> None:
    names = {track: [bar["name"] for bar in bars] for track, bars in _bars(trace).items()}
    assert names["own kernels"] == ["double"] * 3
    assert names["PyTorch"] == ["aten.add"]
    assert len(names["copies"]) == 2
    (process,) = [e["args"]["name"] for e in trace["traceEvents"] if e["name"] == "process_name"]
    assert "sim:a100" in process and "modelled" in process


def test_bars_follow_the_modelled_clock_and_do_not_overlap(trace: dict, report: ScriptReport) -> None:
    bars = sorted(itertools.chain(*_bars(trace).values()), key=lambda bar: bar["ts"])
    assert [bar["name"] for bar in bars[1:-1]] == ["double"] * 3 + ["aten.add"]  # between the two copies
    for one, following in itertools.pairwise(bars):
        assert one["dur"] > 0 and one["ts"] + one["dur"] <= following["ts"] * (1 + 1e-9) + 1e-9
    seconds = {row.name: row.seconds for row in report.profile.rows}
    own = sum(bar["dur"] for bar in bars if bar["name"] == "double")
    assert own == pytest.approx(1e6 * seconds["double"])  # the format counts in microseconds


def test_a_slice_has_grid_configuration_and_bytes(trace: dict) -> None:
    bars = _bars(trace)
    for bar in bars["own kernels"]:
        said = bar["args"]
        assert said["grid"] == "5x1x1" and said["BLOCK"] == "1024" and said["warps"] == "4" and said["bytes"] > 0
    assert "grid" not in bars["PyTorch"][0]["args"] and bars["PyTorch"][0]["args"]["bytes"] > 0


def test_the_page_shows_each_source_line_beside_its_ir(report: ScriptReport) -> None:
    text = re.sub(r"<[^>]*>", "", page(report))
    shown = text.partition("source beside Triton&#39;s IR")[2] or text.partition("source beside Triton's IR")[2]
    load = shown.index("tt.load")
    assert "tl.store(out + at, 2 * tl.load(x + at" in shown[:load] and " loc(" not in shown
    assert "ttir" not in report.model_dump_json()


def test_every_event_is_one_that_perfetto_reads(trace: dict) -> None:
    assert {event["ph"] for event in trace["traceEvents"]} == {"M", "X"}
    for event in trace["traceEvents"]:
        assert isinstance(event["pid"], int) and isinstance(event["tid"], int)
        assert event["ph"] == "M" or {"name", "ts", "dur", "cat", "args"} <= set(event)
    assert trace["otherData"] == {"times": "modelled", "device": "sim:a100"}
