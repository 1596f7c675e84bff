import pytest

from drkernel.rl.data.teacher.problem import generate_problems, generate_tasks, make_task
from drkernel.rl.data.teacher.writer import TeacherConfig
from drkernel.rl.run.sft import AGAIN, copied_modules, copy_of, repeated_kernels
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


def test_kernels_are_repeated_and_only_the_repeat_is_learnt():
    tokenizer = tiny_tokenizer()
    problems = list(generate_problems("train", 6, 0))
    examples = repeated_kernels(tokenizer, problems, TeacherConfig(), 3, 10_000)
    sources = set()
    for problem, example in zip(problems, examples, strict=True):
        trained = [i for i, m in zip(example.ids, example.mask, strict=True) if m]
        answer = tokenizer.decode(trained)
        assert answer.startswith("```python\n") and "ModelNew" in answer and trained[-1] == tokenizer.end_id
        shown = tokenizer.decode(example.ids[: example.mask.index(True)])
        assert answer in shown and make_task(problem).reference.strip() in shown and shown.count(AGAIN) == 1
        assert all(example.mask[example.mask.index(True) :])
        sources.add(answer)
    assert len(sources) == 6
    both = repeated_kernels(tokenizer, problems, TeacherConfig(), 3, 10_000, write=True)
    for problem, example in zip(problems, both, strict=True):
        trained = tokenizer.decode([i for i, m in zip(example.ids, example.mask, strict=True) if m])
        assert trained.count("class ModelNew") == 2 and AGAIN not in trained
        assert make_task(problem).reference.strip() not in trained
    assert repeated_kernels(tokenizer, problems, TeacherConfig(), 3, 10_000) == examples
    assert repeated_kernels(tokenizer, problems, TeacherConfig(), 3, 20) == []
