"""Copies of the metrics for TensorBoard, trackio and wandb."""

import sys
from types import ModuleType

import pytest

from drkernel.config import ConfigError
from drkernel.rl.run.sitting import Sinks


class Recorder(ModuleType):
    """Stands for trackio or wandb: same three calls."""

    def __init__(self, name):
        super().__init__(name)
        self.rows, self.options, self.finished = [], None, False

    def init(self, **options):
        self.options = options
        return self

    def log(self, row):
        self.rows.append(row)

    def finish(self):
        self.finished = True


@pytest.mark.parametrize("name", ["trackio", "wandb"])
def test_numbers_go_to_a_tracker_with_their_step(name, monkeypatch, tmp_path):
    module = Recorder(name)
    monkeypatch.setitem(sys.modules, name, module)
    sinks = Sinks((name,), tmp_path / "run", {"seed": 3})
    sinks.log("rl", 7, {"reward": 0.5, "status": {"correct": 1}, "stage": "rl", "tokens": 12})
    sinks.close()
    assert module.options == {"project": "drkernel", "name": "run", "config": {"seed": 3}}
    assert module.rows == [{"rl/reward": 0.5, "rl/tokens": 12.0, "rl/step": 7}]
    assert module.finished


@pytest.mark.slow
def test_tensorboard_files_hold_the_numbers(tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    sinks = Sinks(("tensorboard",), tmp_path, {})
    for step, value in enumerate((1.0, 2.0, 4.0)):
        sinks.log("rl", step, {"reward": value})
    sinks.close()
    found = EventAccumulator(str(tmp_path / "tensorboard")).Reload().Scalars("rl/reward")
    assert [(event.step, event.value) for event in found] == [(0, 1.0), (1, 2.0), (2, 4.0)]


def test_a_tracker_that_is_not_installed_is_named(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(ConfigError, match=r"pip install 'drkernel\[wandb\]'"):
        Sinks(("wandb",), tmp_path, {})
    Sinks((), tmp_path, {}).close()
