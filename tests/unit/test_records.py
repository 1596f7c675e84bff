"""Records: JSON both ways, unknown fields refused, sizes overridden by name, config errors that name the key."""

import pytest
from pydantic import ValidationError

from drkernel.config import Config, ConfigError, dump_config, load_config
from drkernel.gym.request import EvalRequest, EvalSettings
from drkernel.task import Task, override_constants, sized_reference
from drkernel.verdict import Correctness, Mismatch, Profile, ProfileRow, Verdict

SOURCE = "ROWS = 4096\nCOLS = 64  # columns\n\nclass Model: ...\n"


def task(**changes):
    return Task(**{"id": "t", "reference": SOURCE, "profiles": {"tiny": {"ROWS": 8}}, **changes})


def test_json_round_trip_and_unknown_fields():
    one = task()
    assert Task.model_validate_json(one.model_dump_json()) == one
    verdict = Verdict(status="correct", task_id="t", candidate_sha256="0", device="sim:h200")
    assert Verdict.model_validate_json(verdict.model_dump_json()) == verdict
    with pytest.raises(ValidationError, match="colour"):
        Task.model_validate({**one.model_dump(), "colour": "red"})
    with pytest.raises(ValidationError):
        Task.model_validate({**one.model_dump(), "schema_version": 2})


def test_nan_and_infinity_survive_json():
    wrong = Mismatch(output=0, index=(1,), expected=1.0, actual=float("-inf"), tolerance=0.1, wrong_fraction=0.5)
    one = Correctness(checked_calls=1, passed_calls=0, max_error=float("inf"), mismatch=wrong)
    assert Correctness.model_validate_json(one.model_dump_json()) == one


def test_profiles_override_constants_in_place():
    assert sized_reference(task(), "tiny") == SOURCE.replace("ROWS = 4096", "ROWS = 8")
    assert sized_reference(task(), None) == SOURCE
    with pytest.raises(KeyError, match="it has: tiny"):
        sized_reference(task(), "huge")
    with pytest.raises(ValueError, match="DEPTH"):
        override_constants(SOURCE, {"DEPTH": 3})


def test_coverage_is_custom_time_over_total():
    rows = (
        ProfileRow(name="k", owner="custom", calls=1, seconds=3e-6, share=0.75),
        ProfileRow(name="aten.mm", owner="library", calls=1, seconds=1e-6, share=0.25),
    )
    profile = Profile(kind="modelled", device="sim:h200", rows=rows, total_seconds=4e-6, elapsed_seconds=5e-6)
    assert profile.coverage == pytest.approx(0.75)
    assert Profile(kind="modelled", device="sim:h200", total_seconds=0, elapsed_seconds=0).coverage == 0


def test_request_key_depends_on_content_only():
    base = EvalRequest(task=task(), candidate="x")
    assert base.key == EvalRequest(task=task(tags=("a",)), candidate="x").key
    assert base.key != EvalRequest(task=task(), candidate="y").key
    assert base.key != EvalRequest(task=task(), candidate="x", settings=EvalSettings(checks=4)).key


class _Inner(Config):
    rate: float = 0.1


class _Outer(Config):
    steps: int = 3
    inner: _Inner = _Inner()


def test_config_loads_overrides_and_explains(tmp_path):
    path = tmp_path / "c.yaml"
    path.write_text("steps: 7\n")
    config = load_config(_Outer, path, ["inner.rate=0.5"])
    assert (config.steps, config.inner.rate) == (7, 0.5)
    again = tmp_path / "again.yaml"
    for changed in (False, True):
        again.write_text(dump_config(config, changed))
        assert load_config(_Outer, again) == config
    assert dump_config(load_config(_Outer, path), changed=True) == "steps: 7\n"
    with pytest.raises(ConfigError, match=r"inner\.rat: unknown key"):
        load_config(_Outer, path, ["inner.rat=1"])
    with pytest.raises(ConfigError, match="cannot read config"):
        load_config(_Outer, tmp_path / "none.yaml")
    with pytest.raises(ConfigError, match="key=value"):
        load_config(_Outer, path, ["steps"])
