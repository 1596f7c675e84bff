"""``drkernel doctor --gpu`` on the simulated card, and the facts of the machine made up."""

import threading
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch

from drkernel import sim
from drkernel.cli.doctor import _certify
from drkernel.gym import doctor
from drkernel.gym.doctor import certify
from drkernel.gym.request import EvalSettings
from simulated_card import CARD, use_short_blocks

SETTINGS = EvalSettings(device="cuda:0", trials=10, deadline_s=120, memory_bytes=1 << 30)


@pytest.fixture
def machine(monkeypatch):
    """One card, its driver and a CUDA build of torch, as the judge sees them."""
    with sim.device(CARD):
        card = torch.cuda.get_device_properties(0)
    driver = SimpleNamespace(cuDriverGetVersion=lambda found: setattr(found._obj, "value", 12040))
    monkeypatch.setattr("ctypes.CDLL", lambda name: driver)
    monkeypatch.setattr("torch.version.cuda", "12.8")
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 1)
    monkeypatch.setattr("torch.cuda.get_device_properties", lambda number: card)
    monkeypatch.setattr("torch.cuda.get_device_name", lambda device: card.name)
    monkeypatch.setattr("torch.cuda.get_device_capability", lambda number: (9, 0))
    monkeypatch.setattr("torch.cuda.get_arch_list", lambda: ["sm_80", "sm_90"])
    return card


@pytest.fixture
def card(cards, machine, monkeypatch):
    use_short_blocks(monkeypatch)
    monkeypatch.setattr(doctor, "FLUSH", 1 << 12)
    return cards


def test_the_machine(machine, monkeypatch):
    assert doctor._driver() == "CUDA 12.4, torch was built for 12.8"
    assert "sm_90, built for sm_80, sm_90" in doctor._torch(0)
    with pytest.raises(doctor._Failed, match="and no cuda:1"):
        doctor._torch(1)
    monkeypatch.setattr("torch.cuda.get_arch_list", lambda: ["sm_70", "sm_120"])
    with pytest.raises(doctor._Failed, match="no code for this card"):
        doctor._torch(0)
    monkeypatch.setattr("torch.version.cuda", "13.0")
    with pytest.raises(doctor._Failed, match="the driver is too old"):
        doctor._driver()
    monkeypatch.setattr("torch.version.cuda", None)
    with pytest.raises(doctor._Failed, match="a build without CUDA"):
        doctor._driver()


@pytest.mark.slow
def test_a_card_is_certified(card):
    """All but what the simulated card has not: CUDA C++, and times that a busy machine leaves in proportion."""
    rows = {row.name: row for row in certify(SETTINGS, card, (4 << 10, 4 << 20))}
    failed = {name for name, row in rows.items() if row.result == "FAIL"}
    assert failed - {"clock: kernels of known length", "clock: a reference against itself"} == {"CUDA C++"}, [
        *rows.values()
    ]
    assert {"output of 4 KiB", "output of 4 MiB", "autotuning: 60 configurations"} <= rows.keys()
    assert "co-judge: sim:h200" in rows["card: judge and runner"].detail
    assert (
        rows["time of all rows"].result == "figure"
        and "us by the judge" in rows["clock: kernels of known length"].detail
    )


@pytest.mark.slow
def test_another_card_in_the_runner_fails_and_ends_it(card, monkeypatch):
    other = SimpleNamespace(name="NVIDIA L4", multi_processor_count=58)
    monkeypatch.setattr("torch.cuda.get_device_properties", lambda number: other)
    *_, row = certify(SETTINGS, card)
    assert row.name == "card: judge and runner" and row.result == "FAIL"
    assert "the judge's is NVIDIA L4" in row.detail and "the runner's NVIDIA H200" in row.detail


@pytest.mark.parametrize("slower, passes", [(1.02, True), (1.5, False)])
def test_cards_that_slow_each_other_fail(machine, monkeypatch, slower, passes):
    monkeypatch.setattr("torch.cuda.device_count", lambda: 3)
    begun, all_begun = [], threading.Event()

    def verdict(settings, factory, task, source, *, device, **terms):
        begun.append(device)
        if len(begun) > 3:  # the second round
            all_begun.set() if len(begun) == 6 else all_begun.wait(10)
        return SimpleNamespace(timing=SimpleNamespace(seconds=1e-5 * (slower if len(begun) > 3 else 1)))

    monkeypatch.setattr(doctor, "_verdict", verdict)
    with (
        nullcontext() if passes else pytest.raises(doctor._Failed, match=r"alone and together: cuda:0 10\.0 and 15\.0")
    ):
        assert "cuda:2 10.0 and 10.2 us" in doctor._together(SETTINGS, None)
    assert all_begun.is_set()


def test_a_machine_without_a_gpu_fails_every_row_that_it_reaches(gym, capsys, tmp_path):
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    assert _certify("cuda:0", tmp_path / "report.txt", False) == 1
    shown = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in shown] == ["FAIL"] * 3
    assert (tmp_path / "report.txt").read_text().splitlines()[1:] == shown


@pytest.mark.parametrize("name", ["sim:h200", "cpu", "0"])
def test_only_real_gpus_are_certified(name, capsys):
    assert _certify(name, None, False) == 2
    assert "is named cuda:0" in capsys.readouterr().err
