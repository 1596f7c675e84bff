"""Places where benchmarks/mutants.py breaks the code: drawn, found again, broken behind a switch."""

import ast

import pytest

from mutants import _importing, draw, edited, places

KINDS = {
    "flipped comparison": ("return x is not None", "return x is None"),
    "off by one": ("return x[:3]", "return x[:4]"),
    "and, or": ("return x and (x[0] or x[1]) and x[2]", "return x or (x[0] or x[1]) or x[2]"),
    "dropped not": ("return [not x.a or 2]", "return [x.a or 2]"),
    "dropped check": ("if x > 2: raise ValueError(x - 1)", "if False: raise ValueError(x - 1)"),
    "dropped guard": ("if x: return", "if False: return"),
    "min, max": ("return x.max(dim=1)", "return x.min(dim=1)"),
    "skipped mask": ("return f(x, mask=x.y)", "return f(x, mask=None)"),
    "arithmetic": ("x += len(x)", "x += -(len(x))"),
    "other answer": ("return False", "return True"),
    "dropped call": ("x.check(3)", "None"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_of_change(kind):
    before, after = (f"def f(x):\n    # é\n    {line}\n" for line in KINDS[kind])
    place, (begin, end) = next((place, span) for place, span in places("a.py", before).items() if place.kind == kind)
    assert edited(before, [(begin, end, place.after)]) == after
    for place, (begin, end) in places("a.py", before).items():
        broken = edited(before, [(begin, end, f"({place.after})")])
        assert ast.unparse(ast.parse(broken)) != ast.unparse(ast.parse(before))


def test_what_nobody_runs_as_written_is_left_alone():
    text = '''
LIMIT = 3 + 4
def f(x: "a < b" = 1 + 2) -> None:
    """1 < 2"""
    y: list[1 + 1] = f"{x + 1}"
    assert x < 3
    raise ValueError(x + 1)
class A:
    def __repr__(self): return "a" if self.x < 3 else "b"
    @triton.jit
    def kernel(x): return x + 1
'''
    assert not places("a.py", text)


MODULE = "class A:\n    def f(self, x):\n        if x < 1:\n            x = 2\n        if x < 1:\n            x = 3\n"


def test_a_place_is_drawn_where_both_have_it_wherever_it_moved(tmp_path):
    old, new = tmp_path / "old", tmp_path / "new"
    for checkout, file, text in (
        (old, "drkernel/gym/a.py", f"{MODULE}\ndef g(x):\n    return x + 1\n"),
        (new, "drkernel/sim/b.py", f'"""New."""\n\nimport os\n\n{MODULE}\ndef g(x):\n    return x + 2\n'),
    ):
        (checkout / "src" / file).parent.mkdir(parents=True)
        (checkout / "src" / file).write_text(text)
    drawn = draw([new, old], 9, seed=1)
    assert drawn == draw([new, old], 9, seed=1) and {place.file for place in drawn} == {"src/drkernel/sim/b.py"}
    assert {place.function for place in drawn} == {"A.f"} and len(drawn) == 1  # one of a function
    assert {place.function for place in draw([new], 9, seed=1)} == {"A.f", "g"}


@pytest.mark.parametrize("first", ["X = 1\n", "@a\nclass A: pass\n", "import b\n"])
def test_a_switch_is_imported_after_what_must_stand_first(first):
    text = f'"""What."""\n\nfrom __future__ import annotations\n{first}'
    assert _importing(text) == text.replace(first, f"from drkernel._reach import broken as _broken\n{first}")
