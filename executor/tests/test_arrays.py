"""Kernels on numpy arrays, as the README shows them, and without what else happens to be installed here."""

import re
import subprocess
import venv
from pathlib import Path

import numpy as np
import pytest

from ttir_executor import run
from ttir_executor.compiled import Checks, clear_cache
from ttir_executor.kernel_cache import keeping

EXECUTOR = Path(__file__).resolve().parents[1]
PARTS = dict(re.findall(r"```(\w+)\n(.*?)```", (EXECUTOR / "README.md").read_text(encoding="utf-8"), re.DOTALL))
DOUBLE, USE = PARTS["mlir"], PARTS["python"]


def test_the_readme_s_code_prints_what_it_says(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("double.ttir").write_text(DOUBLE)
    exec(USE, {})
    printed = capsys.readouterr().out.splitlines()
    assert [printed[0], printed[2]] == re.findall(r"# (\[.*\]|\d+\.\d)", USE)
    assert 125 <= float(printed[1]) <= 160  # by where the array happens to lie
    assert [line.split()[:2] for line in printed[3:]] == [["7", "out_of_bounds"]] * 2, printed


def test_programs_that_write_the_same_place_race():
    text = DOUBLE.replace("arith.constant 128 : i32", "arith.constant 64 : i32")
    x = np.ones(8 * 64 + 64, np.float32)
    assert {finding.kind for finding in run(text, (8,), [x]).findings} == {"race"}
    assert not run(text, (8,), [x], checks=Checks()).findings


def test_an_array_may_be_given_twice_and_one_of_no_elements():
    text = DOUBLE.replace("public @double(", "public @double(%y_ptr: !tt.ptr<f32>, %n: i32, %z: !tt.ptr<f64>, ")
    x = np.ones(128, np.float32)
    assert not run(text, (1, 1), [x, 3, np.empty(0), x]).findings
    np.testing.assert_array_equal(x, 2)


@pytest.mark.parametrize(
    ("grid", "arguments", "message"),
    [
        ((8,), [], "takes 1 arguments, not 0"),
        ((0,), [np.zeros(4, np.float32)], "at least one program"),
        ((1,), [3], "x_ptr is a pointer"),
        ((1,), [np.zeros(4)], "f32, 4 bytes each, not to float64"),
        ((1,), [np.zeros(8, np.float32)[::2]], "contiguous"),
        ((1,), [np.frombuffer(bytes(16), np.float32)], "may be written"),
    ],
)
def test_what_does_not_fit_is_refused(grid, arguments, message):
    with pytest.raises(ValueError, match=message):
        run(DOUBLE, grid, arguments)


def test_a_number_is_no_array():
    text = DOUBLE.replace("public @double(", "public @double(%n: i32, ")
    with pytest.raises(ValueError, match="n is a number"):
        run(text, (1,), [np.zeros(4, np.int32), np.zeros(128, np.float32)])


class _Kept:
    def __init__(self):
        self.entries, self.hits = {}, 0

    def get(self, *key):
        self.hits += key in self.entries
        return self.entries.get(key)

    def put(self, content, *key):
        self.entries[key] = content


def test_native_code_is_kept_where_the_caller_says():
    cache, text = _Kept(), DOUBLE.replace("2.000000e+00", "3.000000e+00")
    for _ in range(2):
        x = np.ones(128, np.float32)
        clear_cache()
        with keeping(cache):
            run(text, (1,), [x])
        np.testing.assert_array_equal(x, 3)
    kept = dict(cache.entries)
    assert kept and cache.hits
    clear_cache()
    run(text, (1,), [np.ones(128, np.float32)])
    assert cache.entries == kept


@pytest.mark.slow  # pip gets numpy and llvmlite
@pytest.mark.timeout(600)
def test_it_installs_alone_and_runs(tmp_path):
    venv.create(tmp_path / "venv", with_pip=True)
    python = tmp_path / "venv" / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "-q", EXECUTOR], check=True, cwd=tmp_path)
    listed = subprocess.run([python, "-m", "pip", "list"], check=True, capture_output=True, text=True).stdout
    names = {line.split()[0].lower() for line in listed.splitlines()[2:]}
    assert names <= {"pip", "setuptools", "wheel", "numpy", "llvmlite", "ttir-executor"}
    (tmp_path / "double.ttir").write_text(DOUBLE)
    clean = {"PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        [python, "-I", "-c", USE], check=True, capture_output=True, text=True, cwd=tmp_path, env=clean
    )
    assert "[0. 2. 4. 6.]" in done.stdout and "out_of_bounds" in done.stdout
