import pytest
from tiny import tiny_tokenizer

from drkernel.rl.data.teacher.problem_families import generate_tasks
from drkernel.rl.run.copy_practice import AGAIN, copy_of, copying_examples


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
    examples = copying_examples(tokenizer, tasks, 10_000)
    for task, example in zip(tasks, examples, strict=True):
        trained = [i for i, m in zip(example.ids, example.mask, strict=True) if m]
        assert tokenizer.decode(trained) == f"```python\n{copy_of(task.reference)}\n```"
        assert trained[-1] == tokenizer.end_id
    assert copying_examples(tokenizer, tasks, 20) == []


def test_a_module_without_model_is_refused():
    with pytest.raises(ValueError, match="no class Model"):
        copy_of("import torch\nclass Other: pass\n")


def test_later_turns_ask_for_the_same_copy_again():
    tokenizer = tiny_tokenizer()
    tasks = generate_tasks("train", 2, 0)
    for task, example in zip(tasks, copying_examples(tokenizer, tasks, 10_000, turns=3), strict=True):
        copy = f"```python\n{copy_of(task.reference)}\n```"
        trained = tokenizer.decode([i for i, m in zip(example.ids, example.mask, strict=True) if m])
        assert trained == copy * 3
        assert tokenizer.decode(example.ids).count(AGAIN) == 2
