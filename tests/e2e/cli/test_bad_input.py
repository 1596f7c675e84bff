"""Bad input on the command line: one line that names the cause, exit code 2, and never a traceback."""

import json
from pathlib import Path

import pytest

from drkernel.cli import main

REFERENCE = """
import torch
class Model(torch.nn.Module):
    def forward(self, x):
        return x * 2.0
def get_inputs():
    return [torch.randn(64, 32)]
"""
LONG = "x" * 300


@pytest.fixture
def files(tmp_path, monkeypatch):
    """A folder with files that are not what they should be; the working folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DRKERNEL_TOKEN", raising=False)
    Path("good.py").write_text(REFERENCE)
    Path("deep.py").write_text("-" * 100_000 + "1")
    Path("binary").write_bytes(b"\xff\xfe\x00")
    Path("deep.jsonl").write_text("[" * 200_000)
    Path("surrogate.jsonl").write_text(json.dumps({"id": "a", "reference": "x = '\ud800'"}) + "\n")
    return tmp_path


BAD = {
    "eval deep.py good.py": "cannot parse it",
    f"eval {LONG} good.py": "File name too long",
    f"eval good.py {LONG}": "File name too long",
    "eval good.py good.py --pool http://": "not the address of a service",
    "eval good.py good.py --pool http://127.0.0.1:x": "not the address of a service",
    "tasks list jsonl:deep.jsonl": "deep.jsonl:1: nested too deeply",
    "tasks list jsonl:surrogate.jsonl": "surrogate.jsonl:1: field reference",
    f"tasks list jsonl:{LONG}": "File name too long",
    "train binary": "binary is not a text file",
    f"train {LONG}": "File name too long",
    "worker nonsense": "not the address of a service",
    "serve --token-file binary": "is not a text file",
    "serve --device sim:h2": "no device named 'sim:h2'",
    "store export good.py out.jsonl --status rigth": "--status rigth: it is one of correct,",
    "export . --out out.jsonl --status rigth": "--status rigth: it is one of any, correct,",
    "evla": "did you mean eval?",
}


@pytest.mark.parametrize("line", BAD, ids=lambda line: line.replace(LONG, "LONG"))
def test_the_cause_is_named_in_a_line(files, capsys, line):
    with pytest.raises(SystemExit) as ended:
        main(line.split())
    said = capsys.readouterr().err
    assert ended.value.code == 2
    assert BAD[line] in said and "Traceback" not in said and len(said) < 1500, said


@pytest.mark.slow
def test_what_was_found_out_is_printed_before_it_cannot_be_written(files, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["tasks", "check", "good.py", "--save", "nowhere/tasks.jsonl", "--memory-gib", "inf"])
    said = capsys.readouterr()
    assert ended.value.code == 2 and "nowhere/tasks.jsonl: No such file or directory" in said.err
    assert "1 task" in said.out + said.err
