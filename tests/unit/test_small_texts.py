"""Texts that are cut, aligned or chosen by a rule of their own."""

from drkernel.agents import Toolbox
from drkernel.cli import COMMANDS, _help
from drkernel.gym.kernelgym import _cut


def test_a_text_is_cut_only_where_it_does_not_fit():
    assert [_cut("abcdef", room) for room in (7, 6, 5, 3)] == ["abcdef", "abcdef", "ab...", ""]
    assert _cut("é\n", 3) == "é\n" and _cut("\n\n", 3) == ""


def test_a_task_that_is_named_is_shown_and_others_are_listed():
    box = Toolbox(pool=None)
    for name in ("builtin/level1/softmax", "level1/softmax"):
        assert "class Model" in box.tasks(name)
    assert "class Model" not in box.tasks("level1") and "builtin/level1/softmax" in box.tasks("level1")


def test_what_commands_do_stands_in_one_column():
    lines = [line for line in _help("1.0").splitlines() if line.startswith("  ") and line.split()[0] in COMMANDS]
    assert len(lines) == len(COMMANDS)
    assert len({line.index(text) for line, (_, text) in zip(lines, COMMANDS.values(), strict=True)}) == 1
