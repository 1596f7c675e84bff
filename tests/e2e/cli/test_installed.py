"""drkernel away from its checkout: what it carries, and what it says of packages that are not there."""

import ast
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from drkernel.cli import how_to_get, main
from drkernel.cli.train import find_recipe, purpose, recipes
from drkernel.config import ConfigError, load_config
from drkernel.rl.run.recipe import Recipe
from farm import PYTHON
from places import ROOT, SOURCES
from source_trees import imports, source_files

OTHER_NAMES = {
    "yaml": "pyyaml",
    "transfer-queue": "transferqueue",
    "openenv": "openenv-core",
    "pydantic-core": "pydantic",
    "omegaconf": "verl",
    "tensordict": "verl",
}
"""modules whose package has another name, or comes with another package of ours"""

WITHOUT = """
import importlib.abc, sys

class Hidden(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name.partition(".")[0] in {hidden!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

for name in [*sys.modules]:  # a warm process has imported them
    if name.partition(".")[0] in {{"drkernel", *{hidden!r}}}:
        del sys.modules[name]
sys.meta_path.insert(0, Hidden())
from drkernel.cli import main
main(sys.argv[1:])
"""


def declared() -> dict[str, set[str]]:
    """Packages of each extra ('' for the base), as pyproject.toml declares them."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    groups = {"": project["dependencies"], **project["optional-dependencies"]}
    return {name: {re.match(r"[\w.-]+", line)[0].lower() for line in lines} for name, lines in groups.items()}


def imported() -> dict[str, Path]:
    """Third-party modules that drkernel imports anywhere, with a file that does."""
    found = {}
    for path in (path for path in source_files() if SOURCES in path.parents):
        for node in imports(path):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and not node.level and node.module:
                names = [node.module]
            found |= {name.partition(".")[0]: path for name in names}
    return {name: path for name, path in found.items() if name not in {*sys.stdlib_module_names, "drkernel"}}


def run_without(hidden, *words, cwd):
    """Run a command in a process that cannot import some packages."""
    code = WITHOUT.format(hidden=set(hidden))
    command = [PYTHON, "-c", code, *map(str, words)]
    environment = os.environ | {"NO_COLOR": "1"}
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=120, env=environment)


def test_whatever_is_imported_is_declared():
    known = set().union(*(packages for extra, packages in declared().items() if extra not in ("test", "docs")))
    for module, path in imported().items():
        name = module.replace("_", "-").lower()
        assert OTHER_NAMES.get(name, name) in known, f"{path} imports {module}, which no extra installs"


@pytest.mark.parametrize(
    ("command", "hidden", "extra"),
    [
        (("serve", "--port", "0"), ["fastapi"], "serve"),
        (("serve", "--port", "0"), ["uvicorn"], "serve"),
        (("worker", "http://127.0.0.1:1"), ["httpx"], "serve"),
        (("eval", "builtin/level1/softmax", "answer.py", "--pool", "http://127.0.0.1:1"), ["httpx"], "solve"),
        (("train", "quickstart"), ["transformers"], "train"),
        (("bench", "--model", "hf:nothing", "--limit", "1"), ["transformers"], "train"),
        (("bench", "--model", "openai:nothing"), ["httpx"], "solve"),
    ],
)
def test_a_missing_extra_ends_in_one_sentence(command, hidden, extra, tmp_path):
    (tmp_path / "answer.py").write_text("class ModelNew: pass\n")
    done = run_without(hidden, *command, cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert f"pip install 'drkernel[{extra}]'" in done.stderr and hidden[0] in done.stderr
    assert "Traceback" not in done.stderr and len(done.stderr.strip().splitlines()) <= 2


@pytest.mark.parametrize(
    ("adapter", "hidden", "extra"),
    [
        ("openenv", "openenv", "openenv"),
        ("skyrl", "skyrl_gym", "skyrl"),
        ("trl_turns", "trl", "trl"),
        ("verifiers", "verifiers", "verifiers"),
    ],
)
def test_an_adapter_without_its_extra_says_how_to_install_it(adapter, hidden, extra, tmp_path):
    code = WITHOUT.format(hidden={hidden}).replace("from drkernel.cli import main\nmain(sys.argv[1:])", "")
    command = [PYTHON, "-c", f"{code}\nimport drkernel.adapters.{adapter}"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode and f"pip install 'drkernel[{extra}]'" in done.stderr.splitlines()[-1]


def test_commands_start_without_torch():
    """Help, lists and a wrong word take no two seconds; a grade is asked for and shown without it, too."""
    modules = ("gym.pools.local", "tasks.loaders", "report.verdict")
    code = "import sys\nfrom drkernel.cli import COMMANDS, application\nfor name in COMMANDS: application(name)\n"
    code += "".join(f"import drkernel.{module}\n" for module in modules)
    done = subprocess.run(
        [sys.executable, "-c", f"{code}print('torch' in sys.modules)"], capture_output=True, text=True, timeout=120
    )
    assert done.stdout == "False\n", done.stderr


def test_a_sum_in_another_order_imports_no_compiler():
    """As every operator under a dispatch mode of PyTorch's own would: a second and 100 MB of each judge."""
    code = "import sys, torch\nfrom drkernel.tasks.reorder import Reordered\n"
    code += "with Reordered(in_order=0.5):\n    torch.ones(64).sum()\n"
    done = subprocess.run(
        [sys.executable, "-c", f"{code}print('torch._dynamo' in sys.modules)"],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.stdout == "False\n", done.stderr


def test_an_absence_that_no_extra_mends_is_not_explained():
    assert how_to_get("torch", "eval") is None
    assert how_to_get("my_plugin.module", "train") is None


def test_recipes_are_found_by_name_from_anywhere(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    by_name, by_path = find_recipe(Path("quickstart")), find_recipe(Path("recipes/quickstart.yaml"))
    assert by_name == by_path and load_config(Recipe, by_name).name == "quickstart"
    with pytest.raises(ConfigError, match="did you mean quickstart"):
        find_recipe(Path("quickstrt.yaml"))
    mine = tmp_path / "quickstart.yaml"
    mine.write_text("name: mine\n")
    assert find_recipe(Path("quickstart.yaml")) == Path("quickstart.yaml")  # what is here goes first
    main_returns(0, "recipes")
    listed = capsys.readouterr().out
    assert all(name in listed and purpose(path) in listed for name, path in recipes().items())


def main_returns(code, *words):
    with pytest.raises(SystemExit) as ended:
        main(list(map(str, words)))
    assert (ended.value.code or 0) == code


def test_examples_are_copied_once_and_leave_edits_alone(tmp_path, capsys):
    main_returns(0, "examples", tmp_path)
    copied = tmp_path / "examples" / "softmax" / "candidate.py"
    assert copied.read_text() == (ROOT / "examples" / "softmax" / "candidate.py").read_text()
    assert (tmp_path / "recipes" / "quickstart.yaml").is_file()
    copied.write_text("# mine\n")
    capsys.readouterr()
    main_returns(0, "examples", tmp_path)
    assert capsys.readouterr().out.startswith("0 files") and copied.read_text() == "# mine\n"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("evl",), "did you mean eval?"),
        (("train", "quickstart", "step=3"), "did you mean rl.steps?"),
        (("train", "quickstart", "coldstart.epside.turns=3"), "epside: unknown key; did you mean coldstart.ep"),
        (("train", "quickstart", "rl.learner.advantage=trlo"), "did you mean trloo"),
        (("bench", "--model", "script:x", "context=bst"), "did you mean best"),
        (("eval", "builtin/level1/softmx", "x.py"), "did you mean builtin/level1/softmax"),
        (("sim", "FILE", "--gpu", "h20"), "did you mean h200"),
        (("eval", "builtin/level1/softmax", "FILE", "--device", "h10"), "did you mean sim:h100"),
    ],
)  # fmt: skip
def test_a_wrong_word_is_answered_with_the_near_one(words, expected, tmp_path, capsys):
    file = tmp_path / "file.py"
    file.write_text("class ModelNew: pass\n")
    main_returns(2, *(file if word == "FILE" else word for word in words))
    assert expected in capsys.readouterr().err
