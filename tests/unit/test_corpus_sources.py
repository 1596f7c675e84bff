"""A file of the corpus that is a change to another one: what program it stands for, and what is refused."""

import pytest

from corpus_sources import changed, read_written

BASE = """\
import torch
import triton

LIMIT = 3


@triton.jit
def kernel(x, y):
    a = x + 1
    y = a
    return y


class ModelNew(torch.nn.Module):
    scale = 1.0

    def __init__(self):
        self.seen = []

    # The honest way.
    def forward(self, x):
        return kernel(x)
"""


def after(change: str, without: str = "") -> str:
    return "\n".join(changed(BASE.splitlines(), change.splitlines(), without)) + "\n"


def test_nothing_changed_is_the_base():
    assert after("") == BASE


def test_a_definition_is_replaced_in_its_place_with_the_comments_above_it():
    assert after("# Less.\nLIMIT = 2\n") == BASE.replace("LIMIT = 3", "# Less.\nLIMIT = 2")
    found = after("def kernel(x):\n    return x\n")
    assert found == BASE.replace(
        BASE[BASE.index("@triton") : BASE.index("\n\n\nclass")], "def kernel(x):\n    return x"
    )


def test_of_a_class_only_what_the_change_has_is_replaced():
    found = after("class ModelNew(torch.nn.Module):\n    # A trick.\n    def forward(self, x):\n        return x\n")
    assert found == BASE.replace("# The honest way.", "# A trick.").replace("return kernel(x)", "return x")


def test_a_new_method_stands_before_its_next_neighbour_or_ends_the_class():
    new = "    def eval(self):\n        return self\n"
    ends = after(f"class ModelNew(torch.nn.Module):\n{new}")
    assert ends == f"{BASE}\n{new}"
    before = after(f"class ModelNew(torch.nn.Module):\n{new}\n    def __init__(self):\n        self.seen = []\n")
    assert before == BASE.replace("    def __init__", f"{new}\n    def __init__")


def test_new_imports_come_to_the_imports_and_the_rest_before_what_it_shares_or_the_last_class():
    found = after("import os\n\nos.nice(1)\n\n\ndef helper():\n    pass\n")
    assert found == BASE.replace("import triton\n", "import triton\nimport os\n").replace(
        "class ModelNew", "os.nice(1)\n\n\ndef helper():\n    pass\n\n\nclass ModelNew"
    )
    assert after("MORE = 1\nLIMIT = 3\n") == BASE.replace("LIMIT", "MORE = 1\nLIMIT")


def test_an_import_below_a_statement_stays_there():
    found = after("LIMIT.bar = 1\nimport os\n")
    assert found == BASE.replace("class ModelNew", "LIMIT.bar = 1\nimport os\n\n\nclass ModelNew")


def test_definitions_can_be_taken_away():
    found = after("", "LIMIT, ModelNew.__init__, triton")
    assert "LIMIT" not in found and "__init__" not in found and "import triton" not in found
    assert "scale = 1.0" in found and "def kernel" in found


def test_signed_lines_edit_the_base_wherever_they_stand():
    assert after("# - a = x + 1\n# + a = x + 2\n") == BASE.replace("x + 1", "x + 2")
    assert after("#   y = a\n# + if y:\n# +     y = 0\n") == BASE.replace(
        "    y = a\n", "    y = a\n    if y:\n        y = 0\n"
    )
    both = after("# - y = a\n\n# - scale = 1.0\n# + scale = 2.0\n\nLIMIT = 4\n")
    assert both == BASE.replace("    y = a\n", "").replace("scale = 1.0", "scale = 2.0").replace("= 3", "= 4")


@pytest.mark.parametrize(
    ("change", "without", "said"),
    [
        ("# - not there\n", "", "stands 0 times in the base, not once: not there"),
        ("# -     y = a\n# -     a = x + 1\n", "", "stands 0 times"),
        ("#- a = x + 1\n", "", "a signed line stands above the definitions"),
        ("LIMIT = 2\n# - a = x + 1\n", "", "a signed line stands above the definitions"),
        ("# just words\n", "", "neither a signed line nor a definition"),
        ("# + a = 3\n", "", "nothing says where this comes: # \\+ a = 3"),
        ("", "nothing", "`without` names 'nothing', which is not defined"),
        ("", "ModelNew.nothing", "`without` names 'nothing'"),
    ],
)
def test_a_change_that_does_not_fit_is_refused(change, without, said):
    with pytest.raises(ValueError, match=said):
        after(change, without)


def test_lines_that_stand_twice_are_refused():
    with pytest.raises(ValueError, match="stands 2 times"):
        changed(["a = 1", "b = 2", "a = 1"], ["# - a = 1"])


@pytest.fixture
def corpus(tmp_path):
    """Writes an entry, given as folder/name and text; returns its path."""

    def write(name: str, text: str):
        path = tmp_path / f"{name}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    write("honest/plain", f"# task: softmax\n# twin of: 1\n# expect: correct\n# Plain.\n{BASE}")
    write("honest/less", "# expect: correct\n# base: plain\n# Less.\nLIMIT = 2\n")
    return write


def test_a_chain_of_bases_is_read_from_its_end(corpus):
    written = read_written(
        corpus("cheats/no", "# expect: wrong\n# tier: T1\n# base: less\n# No.\n# - y = a\n# + y = 0\n")
    )
    head = "# task: softmax\n# expect: wrong\n# tier: T1\n# No.\n"
    assert written.source == head + BASE.replace("LIMIT = 3", "LIMIT = 2").replace("y = a", "y = 0")
    assert (written.header["base"], written.what) == ("less", "No.")
    on_a_cheat = read_written(corpus("cheats/so", "# task: relu\n# base: no\n# So.\n"))
    assert on_a_cheat.program == written.program
    assert on_a_cheat.header == {"task": "relu", "expect": "wrong", "tier": "T1", "base": "no"}


def test_a_file_without_a_base_is_left_as_it_is_under_the_common_imports_it_names(corpus):
    head, text = "# task: softmax\n# expect: correct\n# Odd.\n", "\nx=1 # here\n"
    assert read_written(corpus("honest/odd", head + text)).source == head + text
    text = "def odd(x):\n    return torch.ones(3), tl.load(x)\n"
    assert read_written(corpus("honest/odd", head + text)).source == (
        f"{head}import torch\nimport triton.language as tl\n\n\n{text}"
    )


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("cheats/x", "# base: nobody\n# What.\n", "nothing in honest and cheats is called 'nobody'"),
        ("honest/x", "# base: bad\n# What.\n", "nothing in honest is called 'bad'"),
        ("honest/x", "# base: x\n# What.\n", "bases in a circle: x -> x"),
        ("honest/plain", "# base: less\n# What.\n", "bases in a circle: plain -> less -> plain"),
        ("cheats/x", "# bsae: plain\n# What.\n", "'bsae' stands in the header twice, or is none of task"),
        ("cheats/x", "# base: plain\n# base: less\n# What.\n", "'base' stands in the header twice"),
        ("cheats/x", "# task: softmax\nimport torch\n", "must say what the file does"),
        ("cheats/x", "# task: softmax\n# without: y\n# What.\n", "`without` goes with a base"),
        ("cheats/x", "# base: plain\n# What.\n# - z = 3\n", "x.py: stands 0 times in the base"),
        ("cheats/x", "# base: plain\n# What.\ndef (:\n", "x.py: .*invalid syntax"),
    ],
)
def test_a_malformed_file_is_refused_by_name(corpus, name, text, said):
    corpus("cheats/bad", "# base: plain\n# Bad.\n")
    with pytest.raises(ValueError, match=said):
        read_written(corpus(name, text))
