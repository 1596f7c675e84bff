"""What is kept on disk is bound to the source that made it."""

import shutil

import pytest

from drkernel import digest


@pytest.mark.parametrize("packages", [("sim",), ("gym", "sim", "tasks")])
def test_an_edit_of_the_executor_changes_the_keys_and_its_place_does_not(packages, tmp_path, monkeypatch):
    keys = digest.source_digest.__wrapped__
    here, copy = keys(*packages), tmp_path / "elsewhere"
    shutil.copytree(digest._ROOTS["ttir_executor"], copy, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setitem(digest._ROOTS, "ttir_executor", copy)
    assert keys(*packages) == here
    with (copy / "lower" / "emit.py").open("a") as file:
        file.write("EDITED = 1\n")
    assert keys(*packages) != here
