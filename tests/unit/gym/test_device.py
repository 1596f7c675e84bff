"""What a device string means, what can be observed there, and what a verdict says of it."""

import threading

import pytest

from drkernel.config import ConfigError
from drkernel.episode.renderer import Prompts
from drkernel.gym.device import CHECKS, MEANING, alone_on, gpu_name, parse_device, seen_alone, title_of, unchecked
from drkernel.gym.request import EvalSettings
from drkernel.sim.spec import get_spec, known_gpus
from drkernel.tasks.loaders import builtin_task


@pytest.mark.parametrize("gpu", known_gpus())
def test_a_simulated_gpu_is_told_by_its_full_name(gpu):
    device, full = parse_device(f"sim:{gpu}"), get_spec(gpu).full_name
    assert device.simulated and device.timing == "modelled" and gpu_name(device) == full
    assert title_of(device) == f"sim:{gpu} {full}"
    settings = EvalSettings(device=f"sim:{gpu}", profile="tiny")
    assert full in Prompts.load("full").opening(builtin_task("level1/softmax"), settings)[-1].content


def test_a_real_gpu():
    device = parse_device("cuda:3")
    assert not device.simulated and device.timing == "measured" and device.kind == "cuda"
    assert device is parse_device("cuda:3")


@pytest.mark.parametrize(
    "listed, number, entry",
    [(None, 3, "3"), ("6", 0, "6"), ("2,0", 1, "0"), (" GPU-a , GPU-b", 1, "GPU-b"), ("MIG-x", 0, "MIG-x")],
)
def test_a_real_gpu_is_an_entry_of_the_judges_own_list(listed, number, entry):
    environment = {} if listed is None else {"CUDA_VISIBLE_DEVICES": listed, "OTHER": "1"}
    assert seen_alone(parse_device(f"cuda:{number}"), environment) == {"CUDA_VISIBLE_DEVICES": entry}


@pytest.mark.parametrize("listed", ["", "-1", "5", "5,"])
def test_a_gpu_that_the_judges_list_lacks_is_refused(listed):
    with pytest.raises(ConfigError, match="no cuda:1 in CUDA_VISIBLE_DEVICES="):
        seen_alone(parse_device("cuda:1"), {"CUDA_VISIBLE_DEVICES": listed})


@pytest.mark.parametrize(
    "name", ["", "sim", "sim:", "sim:H200", "sim:rtx", "cuda", "cuda:", "cuda:x", "cuda:٣", "gpu:0"]
)
def test_anything_else_is_refused_with_what_there_is(name):
    with pytest.raises(ConfigError, match=r"sim:h200.*cuda:N"):
        parse_device(name)


def test_everything_can_be_observed_on_a_simulated_gpu_and_by_the_judges_device():
    device = parse_device("sim:h200")
    assert set(device.observes) == set(MEANING) and set(device.observes.values()) == {"device"}
    assert list(unchecked(device)) == []


def test_a_real_gpu_says_what_nobody_can_check_there():
    missing = {item.check: item.why for item in unchecked(parse_device("cuda:0"))}
    assert set(missing) == {
        "decoy_kernel (results disturbed)", "copy_kernel", "late_work", "race",
        "out_of_bounds, misaligned, use_after_free, uninitialized",
    }  # fmt: skip
    assert "what each launch reads and writes" in missing["copy_kernel"]
    assert all("cuda:0" in why for why in missing.values())


def test_less_that_can_be_observed_is_more_that_is_not_checked():
    device = parse_device("cuda:0")
    names = {item.check for item in unchecked(device, {})}
    assert {"no_custom_kernel", "decoy_kernel (launches skipped)"} <= names
    assert names == {check.name for check in CHECKS if check.timing in (None, "measured")}


def test_a_card_has_one_lock_under_all_its_names(monkeypatch, tmp_path):
    monkeypatch.setattr("drkernel.gym.device.LOCKS", str(tmp_path))
    monkeypatch.setattr("drkernel.gym.device.uuid_of", lambda device: "GPU-a" if device.name != "cuda:2" else "GPU-b")
    entered = []

    def use(name: str) -> None:
        with alone_on(parse_device(name)):
            entered.append(name)

    with alone_on(parse_device("cuda:0")):
        threads = [threading.Thread(target=use, args=(name,)) for name in ("cuda:1", "cuda:2")]
        for thread in threads:
            thread.start()
        threads[1].join(5)
        assert entered == ["cuda:2"]
    threads[0].join(5)
    assert entered == ["cuda:2", "cuda:1"]
