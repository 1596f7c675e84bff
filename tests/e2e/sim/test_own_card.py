"""Cards of the user's own: read from a file on the command line, known to every process, refused over the wire."""

import json
import os
import subprocess
from pathlib import Path

import pytest
from pydantic import ValidationError

from drkernel.gym.device import parse_device
from drkernel.gym.request import EvalSettings
from drkernel.sim import spec as specs
from drkernel.sim.spec import OWN_CARDS, get_spec, own_card
from farm import PYTHON
from places import EXAMPLES

EXAMPLE = EXAMPLES / "layer_norm"
HALF = "base: l40s\nfields:\n  hbm_bandwidth: 4.32e11\n  full_name: {value: Half an L40S, source: made up}\n"


@pytest.fixture
def write(tmp_path, monkeypatch):
    monkeypatch.setattr(specs, "_own", {})
    monkeypatch.setenv(OWN_CARDS, "{}")

    def write_file(text: str, name: str = "half.yaml") -> Path:
        path = tmp_path / name
        path.write_text(text)
        return path

    return write_file


def test_a_card_over_a_base(write):
    name = own_card(write(HALF))
    card, base = get_spec(name), get_spec("l40s")
    assert name.startswith("half-") and card.name == name and card.full_name == "Half an L40S"
    assert card.hbm_bandwidth == base.hbm_bandwidth / 2 and card.peak == base.peak
    assert card.sources["hbm_bandwidth"] == "the user's own file half.yaml" and card.sources["full_name"] == "made up"
    assert parse_device(f"sim:{name}").spec == card
    assert EvalSettings(device=f"sim:{name}").place.full_name == "Half an L40S"


def test_other_values_are_another_card(write):
    first = own_card(write(HALF))
    assert own_card(write(HALF)) == first  # the same file again
    assert own_card(write(HALF.replace("4.32", "4.33"))) != first


def test_a_whole_card_without_a_base(write):
    data = get_spec("t4").model_dump(exclude={"name", "host", "peak", "sources"})
    name = own_card(write(json.dumps({"fields": data, "peak": get_spec("t4").peak}), "mine.yaml"))
    assert get_spec(name).model_dump(exclude={"name", "host", "sources"}) == get_spec("t4").model_dump(
        exclude={"name", "host", "sources"}
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[1, 2]", "a card is a mapping"),
        ("base: l40s\nfeilds: {}", "unknown key 'feilds'"),
        ("base: l41", "no base named 'l41'; there are: .*l40s"),
        ("base: l40s\nfields: {hbm_bandwith: 1.0e12}", "hbm_bandwith: no such field; did you mean 'hbm_bandwidth'"),
        ("base: l40s\nfields: {hbm_bandwidth: 864}", "hbm_bandwidth: not in bytes a second"),
        ("base: l40s\nfields: {hbm_bandwidth: fast}", "hbm_bandwidth: Input should be a valid number"),
        ("base: l40s\nfields: {sm_count: -1}", "sm_count: Input should be greater than 0"),
        ("base: l40s\nfields: {clock_hz: 9.0e9}", "clock_hz: more than boost_clock_hz"),
        ("base: l40s\nfields: {max_smem_per_block: 200000}", "max_smem_per_block: more than smem_per_sm"),
        ("base: l40s\npeak: {fp32: -1.0}", "peak.fp32: must be a positive number"),
        ("base: l40s\nfields: {hbm_bandwidth: {val: 1}}", "give a value, or"),
        ("fields: {sm_count: 10}", "Field required"),
        ("base: [", "cannot read the card"),
    ],
)
def test_what_is_no_card_is_refused_with_the_field(write, text, message):
    with pytest.raises(ValueError, match=message):
        own_card(write(text))
    assert os.environ[OWN_CARDS] == "{}"


def test_a_name_must_be_one(write):
    with pytest.raises(ValueError, match="the file's name is the card's"):
        own_card(write(HALF, "my card.yaml"))


def test_a_request_may_not_name_a_file(write):
    path = write(HALF)
    for device in (f"sim:{path}", "sim:half.yaml", "sim:half"):
        with pytest.raises(ValidationError, match="there are: sim:a100"):
            EvalSettings(device=device)


def test_the_command_line_grades_on_an_own_card(tmp_path):
    path = tmp_path / "half.yaml"
    path.write_text(HALF)
    files = [str(EXAMPLE / "reference.py"), str(EXAMPLE / "candidate.py")]
    command = [PYTHON, "-m", "drkernel", "eval", *files, "--json", "--device"]
    found = {}
    for device in (f"sim:{path}", "sim:l40s"):  # by a zygote that was started before the card was read
        run = subprocess.run([*command, device], capture_output=True, text=True, timeout=300)
        assert run.returncode == 0, run.stderr
        found[device] = json.loads(run.stdout)
    own, base = found.values()
    assert own["device"].startswith("sim:half-") and own["status"] == base["status"] == "correct"
    assert own["timing"]["seconds"] > base["timing"]["seconds"]
    run = subprocess.run([*command, "sim:/nowhere.yaml"], capture_output=True, text=True, timeout=60)
    assert run.returncode == 2 and "cannot read the card /nowhere.yaml" in run.stderr
