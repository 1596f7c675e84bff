"""``drkernel doctor --calibrate``: figures of a card are found again from the times that it gives.

No GPU here: the times come from a simulated card whose figures are known, so that this tests the fit and not the card.
"""

import json
import os
import subprocess
from pathlib import Path

import pytest

from drkernel.sim.calibration import probes
from drkernel.sim.calibration.fit import fit, modelled, value_of
from drkernel.sim.calibration.probes import PROBES
from drkernel.sim.context import device_of
from drkernel.sim.spec import get_spec, own_card
from farm import PYTHON

BASE = get_spec("h100")
TRUE = BASE.model_copy(
    update={
        "launch_overhead": 5e-6,
        "kernel_launch_overhead": 2.2e-5,
        "copy_latency": 1.2e-5,
        "kernel_min": 2.2e-6,
        "hbm_efficiency": 0.83,
        "l2_bandwidth": 5.2e12,
        "atomic_same_address": 2e-9,
        "peak": {**BASE.peak, "tensor_fp16": 8e14, "fp32": 5.5e13, "sfu": 3e12},
    }
)


@pytest.fixture(scope="module")
def times() -> dict[str, float]:
    return modelled(TRUE)


def test_the_figures_behind_the_times_are_found(times):
    card, rows = fit(BASE, times)
    assert len(rows) == len(PROBES) >= 12 and {row.note for row in rows} == {""}
    for probe in PROBES:
        assert value_of(card, probe.field) == pytest.approx(value_of(TRUE, probe.field), rel=0.02), probe.name
    assert card.l2_bytes == BASE.l2_bytes


def test_no_figure_passes_the_data_sheet_and_what_does_not_agree_says_so(times):
    product, copy = "product of 8192 cubed, fp16", "copy of 1 GiB"
    card, rows = fit(BASE, {product: times[product] / 3, copy: times[copy] / 3})
    assert card.peak["tensor_fp16"] == BASE.peak["tensor_fp16"] and card.hbm_efficiency == 1.0
    assert all("limit" in row.note for row in rows)
    with pytest.raises(ValueError, match="positive"):
        fit(BASE, {copy: 0.0})
    with pytest.raises(ValueError, match="no probe named 'speed'"):
        fit(BASE, {"speed": 1.0})


def calibrate(*args: object) -> subprocess.CompletedProcess:
    command = [PYTHON, "-c", "from drkernel.cli import main; main()", "doctor", "--calibrate", *map(str, args)]
    return subprocess.run(command, capture_output=True, text=True, timeout=200, env={**os.environ, "COLUMNS": "160"})


def test_a_card_is_written_from_recorded_times_and_used(times, tmp_path: Path):
    recorded, target = tmp_path / "times.json", tmp_path / "mine.yaml"
    recorded.write_text(json.dumps({"gpu": "NVIDIA Q1", "where": "a test", "seconds": times}))
    done = calibrate(target, "--recorded", recorded, "--base", "h100")
    assert done.returncode == 0, done.stderr
    assert "copy of 1 GiB" in done.stdout and f"sim:{target}" in done.stdout
    assert "# hbm_efficiency: 0.9 built in, 0.83 fitted" in target.read_text()
    card = get_spec(own_card(target))
    assert card.full_name == "NVIDIA Q1", "the built-in card's name: nothing found it by the GPU's"
    assert card.hbm_efficiency == pytest.approx(0.83, rel=0.01) and "a test" in card.sources["hbm_efficiency"]


def test_products_are_of_numbers_as_they_come(monkeypatch):
    """Of zeros they are 13% faster on a card."""
    monkeypatch.setattr(probes, "SIDE", 64)
    with device_of(get_spec("h200")):
        for probe in PROBES:
            if probe.name.startswith("product"):
                result = probe.prepare(0)().float().cpu()
                assert result.std() == pytest.approx(8.0, rel=0.1)
                assert result.unique().numel() > 1000


def test_without_a_gpu_it_says_so(tmp_path: Path):
    done = calibrate(tmp_path / "mine.yaml")
    assert done.returncode == 1 and "no GPU" in done.stderr and not (tmp_path / "mine.yaml").exists()
