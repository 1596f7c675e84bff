"""What surveys of others' repositories do with a folder that is none, and that a public kernel is still compared."""

import argparse
import subprocess

import pytest
import torch
import triton
import triton.language as tl

from exact_public import tried
from liger_cases import Case
from surveys import asks, clone_with, parser_of


@triton.jit
def square_kernel(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at, mask=at < n)
    tl.store(out + at, value * value, mask=at < n)


def square(x):
    out = torch.empty_like(x)
    square_kernel[(1,)](x, out, x.numel(), BLOCK=32)
    return out


def test_a_folder_that_is_no_clone_is_refused_by_name(tmp_path):
    (tmp_path / "results").mkdir()
    assert clone_with("results")(str(tmp_path)) == tmp_path
    with pytest.raises(argparse.ArgumentTypeError, match="is no clone with data"):
        clone_with("data")(str(tmp_path))
    with pytest.raises(argparse.ArgumentTypeError, match="is no git clone with results"):
        clone_with("results", history=True)(str(tmp_path))
    (tmp_path / "results" / "times.json").write_text("{}")
    for command in (["init", "-q"], ["add", "."], ["commit", "-qm", "times"]):
        subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", *command], cwd=tmp_path, check=True)
    assert clone_with("results/times.json", history=True)(str(tmp_path)) == tmp_path


def test_a_question_that_there_is_not_is_refused_by_name(capsys):
    parser = parser_of("")
    asks(parser, ("gamma", "void"))
    assert parser.parse_args([]).questions == [] and parser.parse_args(["void", "gamma"]).questions == ["void", "gamma"]
    with pytest.raises(SystemExit, match="2"):
        parser.parse_args(["void", "voids"])
    assert "no question 'voids'; there are gamma, void" in capsys.readouterr().err


@pytest.mark.parametrize("reference, outcome", [(lambda x: x * x, "proved"), (lambda x: x * x + 1e-6 * x, "differs")])
def test_a_public_kernel_is_compared(reference, outcome):
    case = Case("square", lambda: (torch.randn(20),), square, reference)
    assert tried(case)[0] == outcome
