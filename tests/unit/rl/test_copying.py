import pytest

from drkernel.rl.data.problem import generate_problems, generate_tasks, make_task
from drkernel.rl.data.writer import Mix, TeacherConfig
from drkernel.rl.run.sft import AGAIN, copied_modules, copy_of, second_answers
from tiny import tiny_tokenizer


def test_the_copy_is_the_class_under_the_new_name():
    for task in generate_tasks("train", 24, 0):
        source = copy_of(task.reference)
        names = {}
        exec(source, names)
        assert "Model" not in names and "get_inputs" not in names
        body = task.reference.split("class Model(torch.nn.Module):")[1].split("def get_inputs")[0]
        assert source == f"import torch\n\nclass ModelNew(torch.nn.Module):{body}".strip()


def test_examples_ask_for_the_copy_and_train_on_it_alone():
    tokenizer = tiny_tokenizer()
    tasks = generate_tasks("train", 3, 0)
    examples = copied_modules(tokenizer, tasks, 10_000)
    for task, example in zip(tasks, examples, strict=True):
        trained = [i for i, m in zip(example.ids, example.mask, strict=True) if m]
        assert tokenizer.decode(trained) == f"```python\n{copy_of(task.reference)}\n```"
        assert trained[-1] == tokenizer.end_id
    assert copied_modules(tokenizer, tasks, 20) == []


def test_a_module_without_model_is_refused():
    with pytest.raises(ValueError, match="no class Model"):
        copy_of("import torch\nclass Other: pass\n")


def test_kernels_are_written_and_gone_on_with():
    tokenizer = tiny_tokenizer()
    problems = list(generate_problems("train", 12, 0))
    keeps = TeacherConfig(first=Mix(bad_mask=0, compile_error=0, wrong_step=0), improve=0, retune=0)
    examples = second_answers(tokenizer, problems, keeps, 3, 10_000)
    for problem, example in zip(problems, examples, strict=True):
        first, second = learnt(tokenizer, example)
        assert first == second and first.startswith("```python\n") and example.ids[-1] == tokenizer.end_id
        whole = tokenizer.decode(example.ids)
        module = make_task(problem).reference.strip()
        assert whole.count(module) == 2 and whole.count(AGAIN.format(module=module)) == 1
    assert len({learnt(tokenizer, example)[0] for example in examples}) == 12
    assert second_answers(tokenizer, problems, keeps, 3, 10_000) == examples
    assert second_answers(tokenizer, problems, keeps, 3, 20) == []


def test_answers_meant_to_be_wrong_are_shown_and_not_learnt():
    tokenizer = tiny_tokenizer()
    problems = list(generate_problems("train", 12, 0))
    wrong = Mix(fused=0, partial=0, lazy=0, bad_mask=0, compile_error=0, wrong_step=1)
    for example in second_answers(tokenizer, problems, TeacherConfig(first=wrong, mend=1), 3, 10_000, "right"):
        (mended,) = learnt(tokenizer, example)
        assert tokenizer.decode(example.ids).count("class ModelNew") == 2 and mended.count("class ModelNew") == 1
        assert example.mask[-1] and all(example.mask[example.mask.index(True) :])


def learnt(tokenizer, example):
    """The answers that the mask holds."""
    ids = [token for token, kept in zip(example.ids, example.mask, strict=True) if kept]
    ends = [place for place, token in enumerate(ids, 1) if token == tokenizer.end_id]
    return [tokenizer.decode(ids[start:end]) for start, end in zip([0, *ends], ends, strict=False)]
