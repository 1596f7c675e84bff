"""Task specs: every source reads to Tasks, every fault names the file, the row and the field."""

import json

import pytest

from drkernel.task import TaskError
from drkernel.tasks.loaders import builtin_tasks, load_task, load_tasks, save_tasks
from drkernel.tasks.problem import load_problem

SOURCE = """import torch
N = 8
class Model(torch.nn.Module):
    def forward(self, x):
        return x * 2
def get_inputs():
    return [torch.randn(N)]
def get_init_inputs():
    return []
"""


@pytest.fixture
def kernelbench(tmp_path):
    for level, names in {1: ["10_Later", "2_Earlier"], 2: ["1_Fusion"]}.items():
        folder = tmp_path / "KernelBench" / f"level{level}"
        folder.mkdir(parents=True)
        for name in names:
            (folder / f"{name}.py").write_text(SOURCE)
    return tmp_path


def test_builtin_specs_narrow_down():
    assert len(load_tasks("builtin")) == len(builtin_tasks())
    assert {task.level for task in load_tasks("builtin/level2")} == {2}
    assert [task.id for task in load_tasks("builtin/level1/softmax")] == ["builtin/level1/softmax"]
    with pytest.raises(TaskError, match="nothing under 'builtin/level9'"):
        load_tasks("builtin/level9")


@pytest.mark.parametrize("below", ["", "KernelBench"])
def test_kernelbench_is_read_as_published(kernelbench, below):
    tasks = load_tasks(f"kernelbench:{kernelbench / below}")
    names = ["kernelbench/level1/2_Earlier", "kernelbench/level1/10_Later", "kernelbench/level2/1_Fusion"]
    assert [task.id for task in tasks] == names
    assert tasks[0].provenance.license == "MIT" and tasks[0].provenance.path.endswith("2_Earlier.py")
    assert load_problem(tasks[0], None).instance(0).run([3]) == [6]


def test_one_kernelbench_level(kernelbench):
    tasks = load_tasks(f"kernelbench:{kernelbench / 'KernelBench' / 'level2'}", precision="bf16")
    assert [(task.id, task.level, task.precision) for task in tasks] == [("kernelbench/level2/1_Fusion", 2, "bf16")]


def test_jsonl_round_trip(tmp_path):
    path = tmp_path / "tasks.jsonl"
    save_tasks(builtin_tasks(), path)
    assert load_tasks(f"jsonl:{path}") == list(builtin_tasks())


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("{", ":2: not valid JSON"),
        ("[1]", ":2: a task must be a JSON object"),
        (json.dumps({"id": "a", "reference": SOURCE, "colour": 1}), ":2: field colour"),
        (json.dumps({"id": "a"}), ":2: field reference"),
        (json.dumps({"id": "a", "reference": "x = ("}), ":2: field reference: line 1 is not valid Python"),
        (json.dumps({"id": "a", "reference": SOURCE, "precision": "fp7"}), ":2: field precision"),
        (json.dumps({"id": "first", "reference": SOURCE}), ":2: field id: 'first' was used"),
    ],
)
def test_jsonl_faults_name_line_and_field(tmp_path, line, words):
    path = tmp_path / "tasks.jsonl"
    path.write_text(json.dumps({"id": "first", "reference": SOURCE}) + "\n" + line + "\n")
    with pytest.raises(TaskError) as caught:
        load_tasks(f"jsonl:{path}")
    assert str(path) + words in str(caught.value)


def write_parquet(path, rows):
    pyarrow = pytest.importorskip("pyarrow")
    import pyarrow.parquet as parquet

    parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    return f"parquet:{path}"


def test_parquet_with_kernelbench_columns(tmp_path):
    rows = [{"code": SOURCE, "level": 2, "name": "7_Thing", "problem_id": 7}]
    (task,) = load_tasks(write_parquet(tmp_path / "k.parquet", rows))
    assert (task.id, task.level, task.reference) == ("kernelbench/level2/7_Thing", 2, SOURCE)
    assert task.provenance.path.endswith("k.parquet#0")


@pytest.mark.parametrize(
    "reward",
    [{"style": "rule", "ground_truth": SOURCE}, {"ground_truth": json.dumps({"pytorch_code": SOURCE})}],
)
def test_parquet_with_verl_columns(tmp_path, reward):
    row = {
        "data_source": "cuda_llm",
        "prompt": [{"role": "user", "content": "write a kernel"}],
        "reward_model": reward,
        "extra_info": {"index": 12, "level": 1},
    }
    (task,) = load_tasks(write_parquet(tmp_path / "v.parquet", [row]))
    assert (task.id, task.level, task.reference) == ("cuda_llm/12", 1, SOURCE)


def test_parquet_faults_name_row_and_field(tmp_path):
    rows = [{"code": SOURCE, "level": 1, "name": "a"}, {"code": None, "level": 1, "name": "b"}]
    with pytest.raises(TaskError, match=r"k.parquet row 1: field code: .* found nothing"):
        load_tasks(write_parquet(tmp_path / "k.parquet", rows))
    with pytest.raises(TaskError, match="columns a are neither KernelBench's"):
        load_tasks(write_parquet(tmp_path / "o.parquet", [{"a": 1}]))
    (tmp_path / "text.parquet").write_text("no")
    with pytest.raises(TaskError, match="cannot read"):
        load_tasks(f"parquet:{tmp_path / 'text.parquet'}")


def test_single_files_and_folders(tmp_path):
    (tmp_path / "mine.py").write_text(SOURCE)
    (tmp_path / "other.py").write_text(SOURCE)
    assert [task.id for task in load_tasks(f"file:{tmp_path / 'mine.py'}")] == ["file/mine"]
    assert len(load_tasks(f"file:{tmp_path}", precision="fp16")) == 2
    (tmp_path / "bad.py").write_text("def (")
    with pytest.raises(TaskError, match=r"bad.py: field reference: line 1 is not valid Python"):
        load_tasks(f"file:{tmp_path / 'bad.py'}")


@pytest.mark.parametrize(
    "spec", ["", "nonsense", "file:", "web:http", "kernelbench:/no/such/place", "file:/no/such.py"]
)
def test_specs_that_mean_nothing_are_refused(spec):
    with pytest.raises(TaskError):
        load_tasks(spec)


def test_precision_is_refused_where_tasks_declare_it():
    with pytest.raises(TaskError, match="declare their own precision"):
        load_tasks("builtin", precision="fp16")


@pytest.mark.parametrize("below", ["level1/2", "level1/2_Earlier", "level1/2_Earlier.py", "KernelBench/level1/2"])
def test_one_problem_of_kernelbench_by_number_or_name(kernelbench, below):
    assert load_task(f"kernelbench:{kernelbench / below}").id == "kernelbench/level1/2_Earlier"


def test_one_task_of_a_file_by_id(tmp_path):
    saved = tmp_path / "tasks.jsonl"
    save_tasks(builtin_tasks()[:5], saved)
    wanted = builtin_tasks()[3]
    for id in (wanted.id, wanted.id.rpartition("/")[2]):
        assert load_task(f"jsonl:{saved}#{id}") == wanted
    assert load_task(f"jsonl:{saved}#{wanted.id}", "fp64").precision == "fp64"
    with pytest.raises(TaskError, match=f"no task 'argmin_column'; near to it: .*{builtin_tasks()[0].id}"):
        load_task(f"jsonl:{saved}#argmin_column")


@pytest.mark.parametrize(
    ("reference", "words"),
    [
        ("builtin/level1", r"names \d+ tasks .*name one of them"),
        ("nowhere", "cannot read the task spec 'nowhere': it is neither a file"),
        ("kernelbench:DIR/level1/7", "holds no problem 7"),
        ("kernelbench:DIR/none/level1/1", "there is no folder .*none/level1"),
    ],
)
def test_what_is_not_one_task_is_refused(kernelbench, reference, words):
    with pytest.raises(TaskError, match=words):
        load_task(reference.replace("DIR", str(kernelbench)))


def test_a_file_named_reference_is_called_by_its_folder(kernelbench):
    path = kernelbench / "reference.py"
    path.write_text(SOURCE)
    assert load_task(str(path)).id == kernelbench.name
