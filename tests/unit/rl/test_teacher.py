"""The program teacher: references run, answers parse, families do not leak, a seed repeats everything."""

import ast
import random
import re

import pytest
import torch

from drkernel.rl.data.problem import (
    FAMILIES,
    NORMS,
    REDUCTIONS,
    SOFTMAX,
    STEPS,
    draw_problem,
    family_names,
    generate_problems,
    generate_tasks,
    make_task,
)
from drkernel.rl.data.writer import (
    BLOCKS,
    FLAWS,
    WARPS,
    Mix,
    ProgramTeacher,
    Style,
    TeacherConfig,
    can_have,
    write_answer,
)
from drkernel.task import sized_reference

PROBLEMS = list(generate_problems("train", 60, 0)) + list(generate_problems("heldout", 30, 0))


def run_reference(problem):
    namespace = {}
    exec(sized_reference(make_task(problem), "tiny"), namespace)
    torch.manual_seed(0)
    return namespace["Model"]()(*namespace["get_inputs"]())


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda p: f"{p.family}-{p.signature}")
def test_references_run_and_vary(problem):
    out = run_reference(problem)
    assert torch.isfinite(out).all()
    size = problem.tiny
    assert out.shape == ((size.rows,) if problem.reduces else (size.rows, size.columns))
    assert out.std() > 0


@pytest.mark.parametrize("problem", PROBLEMS[::7], ids=lambda p: p.signature)
def test_every_flaw_changes_the_source_and_still_parses(problem):
    good = write_answer(problem, Style())
    ast.parse(good)
    for flaw in FLAWS:
        if can_have(problem, flaw):
            bent = write_answer(problem, Style(), flaw, random.Random(1))
            ast.parse(bent)
            assert bent != good


def test_splits_share_no_family_and_no_source():
    train, heldout = list(generate_problems("train", 500, 3)), list(generate_problems("heldout", 200, 3))
    assert not {problem.family for problem in train} & {problem.family for problem in heldout}
    assert not {make_task(problem).reference for problem in train} & {make_task(one).reference for one in heldout}
    assert not set(family_names("train")) & set(family_names("heldout"))


def test_practice_of_drawn_structures_has_none_of_the_heldout_ones():
    groups = {core: f"cores of {core_group}" for core_group in (NORMS, SOFTMAX, REDUCTIONS) for core in core_group}

    def structure(problem):
        parts = [[step.op if step.rule.operand == "bias" else step.rule.operand for step in steps]
                 for steps in (problem.before, problem.after)]  # fmt: skip
        return f"{groups.get(problem.core, problem.core)} {parts}"

    heldout = {structure(problem) for problem in generate_problems("heldout", 300, 3)}
    drawn = [structure(problem) for problem in generate_problems("train", 3000, 3, checked=False, drawn=True)]
    assert len(heldout) == 6 and not heldout & set(drawn)
    assert len(set(drawn)) > 150 and {groups[core] for core in ("rms", "softmax", "sum")} < {
        d.split(" [")[0] for d in drawn
    }


def test_heldout_families_use_only_parts_seen_in_training():
    train = list(generate_problems("train", 2000, 0))
    ops = {step.op for p in train for step in p.steps}
    assert ops == set(STEPS)
    cores = {core for f in FAMILIES.values() if f.split == "train" for core in f.cores}
    assert all(core in cores for f in FAMILIES.values() for core in f.cores)


def test_generation_repeats_by_seed_and_is_distinct():
    one, two = generate_tasks("train", 200, 5), generate_tasks("train", 200, 5)
    assert one == two
    assert len({task.id for task in one}) == 200
    assert generate_tasks("train", 20, 6) != one[:20]


def test_teacher_follows_its_mix_and_mends():
    problem = draw_problem(FAMILIES["softmax"], random.Random(0))
    plans = [ProgramTeacher(problem, TeacherConfig(), random.Random(k)).next_answer()[0] for k in range(400)]
    assert abs(plans.count("lazy") / 400 - Mix().lazy / Mix().total) < 0.08
    lazy = Mix(fused=0, partial=0, lazy=1, bad_mask=0, compile_error=0, wrong_step=0)
    always = TeacherConfig(first=lazy, improve=1.0)
    teacher = ProgramTeacher(problem, always, random.Random(0))
    assert [teacher.next_answer()[0] for _ in range(3)] == ["lazy", "fused", "fused"]
    with pytest.raises(ValueError, match="above 0"):
        Mix(fused=0, partial=0, lazy=0, bad_mask=0, compile_error=0, wrong_step=0)


def test_later_answers_are_launched_anew_as_often_as_asked():
    problem = draw_problem(FAMILIES["chain"], random.Random(0))
    right = Mix(fused=1, partial=0, lazy=0, bad_mask=0, compile_error=0, wrong_step=0)
    for chance, most in ((0.0, 1), (1.0, len(BLOCKS) * len(WARPS))):
        teacher = ProgramTeacher(problem, TeacherConfig(first=right, retune=chance), random.Random(0))
        launches = {line for _ in range(60) for line in teacher.next_answer()[1].splitlines() if "num_warps=" in line}
        assert most / 2 < len(launches) <= most


def test_a_careless_reader_makes_several_mistakes():
    problem = draw_problem(FAMILIES["chain"], random.Random(0))
    right = set(write_answer(problem, Style()).splitlines())

    def wrong_lines(careless):
        answers = [write_answer(problem, Style(), "wrong_step", random.Random(k), careless) for k in range(60)]
        return sum(len(set(answer.splitlines()) ^ right) for answer in answers)

    assert wrong_lines(0.7) > 1.2 * wrong_lines(0.0) > 0


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda p: f"{p.family}-{p.signature}")
def test_own_sizes_are_large_and_tiny_ones_run_the_same_kernel(problem):
    """A row's kernel holds the row in a block: one of another size would have to be compared anew by the judge."""
    own, tiny = problem.own, problem.tiny
    assert own.rows * own.columns > 1000 * tiny.rows * min(tiny.columns, 200)
    assert tiny.columns & (tiny.columns - 1) or problem.kind != "row"
    if problem.kind == "row":
        assert (own.columns - 1).bit_length() == (tiny.columns - 1).bit_length()


@pytest.mark.parametrize("problem", [p for p in PROBLEMS if can_have(p, "partial")][::4], ids=lambda p: p.family)
def test_a_partial_answer_leaves_the_first_operations_to_pytorch(problem):
    source = write_answer(problem, Style(), "partial")
    host = source[source.index("def forward") :]
    (kept,) = re.findall(r"^        x = (.+)$", host, re.M)
    assert kept in make_task(problem).reference
    assert source.count("= tl.") >= 2 and source != write_answer(problem, Style(), "lazy")


def test_every_line_of_a_heldout_answer_occurs_in_training_answers():
    """What is new in a held-out problem is how its lines are put together, never a line."""
    seen = {line for p in generate_problems("train", 1500, 0) for line in write_answer(p, Style()).splitlines()}
    answers = [write_answer(problem, Style()) for problem in generate_problems("heldout", 100, 0)]
    missing = sorted({line for answer in answers for line in answer.splitlines()} - seen)
    assert len(missing) <= 0.1 * len({line for answer in answers for line in answer.splitlines()}), missing
