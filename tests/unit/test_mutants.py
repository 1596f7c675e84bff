"""Places where benchmarks/mutants.py breaks the code: chosen, found again, broken, probed."""

import ast
import sys
from types import ModuleType

import pytest

import mutants
import mutants_places
from mutants_places import Place, choose, is_other_program, located, modules, mutated, places, probed

CHANGES = {
    "flipped comparison": ("return x is not None", "return x is None"),
    "off by one": ("return x[:3]", "return x[:4]"),
    "and, or": ("return x and (x[0] or x[1]) and x[2]", "return (x or (x[0] or x[1]) or x[2])"),
    "dropped not": ("return [not x.a or 2]", "return [(x.a) or 2]"),
    "dropped check": ("if x > 2: raise ValueError(x - 1)", "if (False and (x > 2)): raise ValueError(x - 1)"),
    "dropped guard": ("if x: return", "if (False and (x)): return"),
    "min, max": ("return x.max(dim=1)", "return x.min(dim=1)"),
    "skipped mask": ("return f(x, mask=x.y)", "return f(x, mask=None)"),
    "arithmetic": ("x += len(x)", "x -= len(x)"),
    "other answer": ("return False", "return True"),
    "dropped call": ("x.check(3)", "None"),
}

ROOMS = ("drkernel/sim", "drkernel/gym", "ttir_executor")


def toy(folder, text, file):
    """A checkout with one module."""
    path = folder / located(file)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return folder


def of_change(text, change):
    return [place for place in places("a.py", text) if place.change == change]


@pytest.mark.parametrize("change", CHANGES)
def test_each_kind_of_change(change):
    before, after = (f"def f(x):\n    # é\n    {line}\n" for line in CHANGES[change])
    assert mutated(before, of_change(before, change)[0]) == after
    assert all(is_other_program(before, place) for place in places("a.py", before))


@pytest.mark.parametrize(
    "line", ["return x + 1 < len(x) - 2", "return x[1:, 0] & (x > 3)", "y = not min(x, 2) or x <= 1"]
)
def test_whatever_is_broken_still_compiles_and_only_there(line):
    text = f"def f(x):\n    {line}\n\n\ndef g(x):\n    return x  # as it was\n"
    for place in places("a.py", text):
        broken = mutated(text, place)
        assert ast.unparse(ast.parse(broken).body[0]) != ast.unparse(ast.parse(text).body[0])
        assert broken.splitlines()[2:] == text.splitlines()[2:]


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


def test_a_place_is_found_again_where_lines_moved_and_told_from_its_twin():
    text = "class A:\n    def f(self, x):\n        if x < 1:\n            x = 2\n        if x < 1:\n            x = 3\n"
    first, second = of_change(text, "flipped comparison")
    assert (first.function, first.nth, second.nth) == ("A.f", 0, 1)
    moved = '"""New."""\nimport os\n\n' + text.replace("class A:\n", "class A:\n    y = 1\n\n")
    assert mutated(moved, second).count("x >= 1") == 1
    assert mutated(moved, second).index("x < 1") < mutated(moved, second).index("x >= 1")
    assert first not in places("a.py", text.replace("x < 1", "x < 7"))


def test_the_choice_is_the_seeds_spread_over_rooms_and_stands_when_a_place_goes(tmp_path, monkeypatch):
    monkeypatch.setattr(mutants_places, "SMALL", 50)
    text = "".join(f"def f{k}(x):\n    return x[{k}:] < {k} and not x\n\n\n" for k in range(20))
    for room in ROOMS:
        toy(tmp_path / "old", text, f"{room}/a.py")
    old = tmp_path / "old"
    chosen = choose(old, old, 9, seed=1)
    assert chosen == choose(old, old, 9, seed=1) != choose(old, old, 9, seed=2)
    assert [sum(place.file.startswith(room) for place in chosen) for room in ROOMS] == [3, 3, 3]
    assert len({(place.file, place.function) for place in chosen}) == 9
    assert len({place.change for place in chosen if place.file == f"{ROOMS[0]}/a.py"}) == 3
    assert set(chosen) < set(choose(old, old, 12, seed=1))
    for room in ROOMS:
        toy(tmp_path / "new", text, f"{room}/a.py")
    path = tmp_path / "new" / located(chosen[0].file)
    path.write_text(path.read_text().replace(chosen[0].line, "return None"))
    assert set(chosen) - set(choose(old, tmp_path / "new", 9, seed=1)) == {chosen[0]}
    assert f"{ROOMS[0]}/a.py" in modules(old)


def test_a_probe_tells_the_places_that_are_reached_and_changes_nothing(monkeypatch):
    text = "from __future__ import annotations\nimport os\ndef f(x):\n    if x < 1:\n        return x + 1\n    return 0"
    found = {place.change: at for place, at in places("a.py", text).items()}
    text_with = probed(text, {4: found["dropped guard"], 7: found["arithmetic"]}, "toy_reach")
    reached = []
    module = ModuleType("toy_reach")
    module.reach = reached.append
    monkeypatch.setitem(sys.modules, "toy_reach", module)
    exec(compile(text_with, "a.py", "exec"), names := {})
    assert text_with.count("\n") == text.count("\n")
    assert (names["f"](2), reached) == (0, [4])
    assert (names["f"](0), reached) == (1, [4, 4, 7])


def test_a_run_that_did_not_end_failed_at_the_test_that_had_begun(tmp_path):
    lines = tmp_path / "out.jsonl"
    told = '{"id": "a::b", "outcome": "passed"}\n{"id": "a::c", "outcome": "started"}\n{"id": "a::d", "outc'
    lines.write_text(told)
    assert vars(mutants._read(lines, "hung")) == {"passed": ["a::b"], "failed": ["a::c"], "how": "hung"}
    lines.write_text('{"id": "a.py", "outcome": "failed"}\n{"id": "", "outcome": "finished"}\n')
    assert vars(mutants._read(lines, "crashed")) == {"passed": [], "failed": ["a.py"], "how": ""}
    assert vars(mutants._read(tmp_path / "none", "crashed")) == {"passed": [], "failed": [""], "how": "crashed"}


def test_the_table_compares_what_both_checkouts_have(tmp_path):
    place = Place("a.py", "f", "return a | b", "off by one", "1", "2")
    text = mutants.json.dumps([{**vars(place), "nth": nth} for nth in range(4)])
    old = [("killed", "t::a"), ("survived", ""), ("killed", "t::a"), ("killed", "t::a")]
    new = [("killed", "t::b"), ("killed", "t::b"), ("gone", ""), ("not reached", "")]
    for name, results in (("old", old), ("new", new)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "places.json").write_text(text)
        lines = [{"place": at, "result": result, "by": by} for at, (result, by) in enumerate(results)]
        (tmp_path / name / "kills.jsonl").write_text("".join(mutants.json.dumps(line) + "\n" for line in lines))
    told = mutants.table(tmp_path / "old", tmp_path / "new", 60)
    assert "Of 3 mutants the old tests kill 2, the new ones 2: 1 only the old ones, 1 only the new ones." in told
    assert told.count("return a \\| b") == 3 and "| **survived** | killed: `t::b` |" in told
    assert "Of 2 mutants" in mutants.table(tmp_path / "old", tmp_path / "new", 2)
