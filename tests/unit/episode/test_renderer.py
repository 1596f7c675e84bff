"""Prompts: named sets, files of one's own, mistakes in them."""

import json

import pytest
import yaml

from drkernel.config import ConfigError
from drkernel.episode.episode import EpisodeConfig
from drkernel.episode.renderer import Prompts
from drkernel.gym.request import EvalSettings
from solve_fakes import make_tasks
from verdicts import verdict_of

TASK = make_tasks(1)[0]
VERDICT = verdict_of("incorrect")


def test_files_replace_the_set_one_by_one(tmp_path):
    (tmp_path / "system.txt").write_text("You know $device by heart. $$5\n")
    (tmp_path / "feedback.txt").write_text("[$turn/$turns] $feedback\n")
    prompts = Prompts.load(str(tmp_path))
    system, user = prompts.opening(TASK, EvalSettings())
    assert system.role == "system" and system.content == "You know NVIDIA H200 by heart. $5"
    assert user.content == Prompts.load("full").opening(TASK, EvalSettings())[-1].content
    assert prompts.after(VERDICT, None, "", 2, 3).startswith("[2/3] Wrong result.")
    assert prompts.version != Prompts.load("full").version


def test_what_is_saved_reads_back_to_the_same_version(tmp_path):
    for name in ("full", "compact", "kernelgym"):
        prompts = Prompts.load(name)
        prompts.save(tmp_path / name)
        again = Prompts.load(str(tmp_path / name))
        assert again.version == prompts.version and again.style == name


def test_prompts_yaml_says_what_the_feedback_holds(tmp_path):
    (tmp_path / "task.txt").write_text("Speed this up:\n$reference\n")
    (tmp_path / "prompts.yaml").write_text("style: compact\nfeedback_chars: 99\n")
    prompts = Prompts.load(str(tmp_path))
    assert (prompts.style, prompts.feedback_chars) == ("compact", 99)
    assert prompts.feedback == Prompts.load("compact").feedback and prompts.version != Prompts.load("compact").version
    (tmp_path / "prompts.yaml").write_text("stile: compact\n")
    with pytest.raises(ConfigError, match="stile"):
        Prompts.load(str(tmp_path))


@pytest.mark.parametrize(("file", "text", "message"), [
    ("task.txt", "Do $something with $reference", r"\$something is unknown here; there are: \$device"),
    ("task.txt", "Do it", r"\$reference is missing"),
    ("feedback.txt", "Costs $5: $feedback", r"'\$' that starts no name"),
    ("other.txt", "x", "holds none of"),
])  # fmt: skip
def test_mistakes_in_a_file_are_named(tmp_path, file, text, message):
    (tmp_path / file).write_text(text)
    with pytest.raises(ConfigError, match=message):
        Prompts.load(str(tmp_path))


def test_the_set_of_the_paper_s_structure_has_an_example_pair_and_reports_as_json():
    prompts = Prompts.load("kernelgym")
    (only,) = prompts.opening(TASK, EvalSettings())
    order = ["class Model(nn.Module)", "class ModelNew(nn.Module)", TASK.reference.strip().splitlines()[0]]
    assert [only.content.index(text) for text in order[:2]] == sorted(only.content.index(text) for text in order[:2])
    assert only.content.rindex(order[2]) > only.content.index(order[1]), "the module comes after the example"
    after = prompts.after(VERDICT, None, "", 1, 3, 0.25)
    assert json.loads(after[after.index("{") : after.rindex("}") + 1])["reward"] == 0.25
    assert after.endswith("Think step by step first.") and "`ModelNew`" in after


TURNS = [
    {"name": "first_turn", "condition": "current_turn  == 0", "history_mode": "all", "skip_env": 0.0,
     "response_truncation": "python_code", "template": "Think for $5 {first}.\n"},
    {"name": "tool_response", "condition": "made == True", "history_mode": "all", "skip_env": 0.0,
     "update_memory": False, "template": "The judge:\n{feedback}\nMend it for $1, {{x}}.\n"},
]  # fmt: skip


def in_kernelgyms_form(tmp_path, **changes):
    path = tmp_path / "turns.yaml"
    path.write_text(yaml.safe_dump({"method": "system", "prompt": "You cost $2.", "per_turn_prompts": TURNS} | changes))
    return str(path)


def test_a_file_of_kernelgym_s_says_what_is_sent(tmp_path):
    prompts = Prompts.load(in_kernelgyms_form(tmp_path))
    system, user = prompts.opening(TASK, EvalSettings())
    assert system.content == "You cost $2."
    assert (
        user.content
        == Prompts.load("kernelgym").opening(TASK, EvalSettings())[-1].content + "\n\nThink for $5 {first}."
    )
    head, rest = prompts.after(VERDICT, None, "", 1, 3, 0.25).split("\n", 1)
    report, tail = rest.rsplit("\n", 1)
    assert (head, tail) == ("The judge:", "Mend it for $1, {x}.") and json.loads(report)["reward"] == 0.25
    prompts.save(tmp_path / "copy")
    assert Prompts.load(str(tmp_path / "copy")).version == prompts.version
    for method, where in (("pre_input", "startswith"), ("post_input", "endswith")):
        texts = Prompts.load(in_kernelgyms_form(tmp_path, method=method, per_turn_prompts=TURNS[1:]))
        (only,) = texts.opening(TASK, EvalSettings())
        assert getattr(only.content, where)("You cost $2.") and only.role == "user"
    from_data = Prompts.load(in_kernelgyms_form(tmp_path), opening={"system": "", "task": "Faster: $reference"})
    assert from_data.task == "Faster: $reference\n\nThink for $$5 {first}." and from_data.system == "You cost $$2."


@pytest.mark.parametrize(("changes", "message"), [
    ({"per_turn_prompts": TURNS[:1]}, "no entry is named tool_response"),
    ({"per_turn_prompts": [{**TURNS[1], "template": "No report."}]}, r"\{feedback\} is missing"),
    ({"per_turn_prompts": [{**TURNS[1], "template": "{feedback} {x}"}]}, r"\{x\} is unknown there"),
    ({"per_turn_prompts": [{**TURNS[1], "template": "{feedback"}]}, "write {{ for a brace"),
    ({"per_turn_prompts": [{**TURNS[1], "history_mode": "initial+recent2"}]}, "episode.context says"),
    ({"per_turn_prompts": [{**TURNS[1], "skip_env": 0.5}]}, "every answer is graded"),
    ({"per_turn_prompts": [{**TURNS[0], "condition": "current_turn > 1"}, TURNS[1]]}, "'first_turn': condition"),
    ({"per_turn_prompts": "none"}, r"per_turn_prompts.*\(KernelGYM's prompts have"),
    ({"method": "tool"}, "method"),
    ({"prompts": "x"}, "prompts"),
])  # fmt: skip
def test_a_file_of_another_shape_is_refused_by_its_key(tmp_path, changes, message):
    with pytest.raises(ConfigError, match=message) as caught:
        Prompts.load(in_kernelgyms_form(tmp_path, **changes))
    assert "turns.yaml" in str(caught.value)


def test_unknown_prompts_are_refused():
    with pytest.raises(ConfigError, match="'full', 'compact', 'kernelgym', a directory"):
        Prompts.load("nonsense")


def test_a_task_without_the_size_profile_is_shown_as_it_is():
    task = TASK.model_copy(update={"profiles": {}})
    assert "ROWS = 2" in Prompts.load("full").opening(task, EvalSettings())[0].content


def test_the_language_that_is_asked_for_says_its_own_rules():
    triton, cuda = (
        Prompts.load(language=name).opening(TASK, EvalSettings())[-1].content for name in ("triton", "cuda")
    )
    assert "in Triton." in triton and "@triton.jit" in triton and "tl.dot" in triton
    assert (
        "in CUDA C++." in cuda
        and "load_inline" in cuda
        and "tl.dot" not in cuda
        and "  " not in cuda.partition("- ")[2]
    )
    assert Prompts.load(language="cuda").version != Prompts.load().version
    with pytest.raises(ConfigError, match="no language 'fortran'; there are: triton, cuda"):
        Prompts.load(language="fortran")
    with pytest.raises(ConfigError, match=r"episode.language cuda: sim:h200 is a simulated GPU"):
        EpisodeConfig(language="cuda").check()
    EpisodeConfig(language="cuda", settings=EvalSettings(device="cuda:0")).check()


def test_prompts_name_the_sizes_that_are_timed_where_those_of_the_profile_are_shown():
    reference = TASK.reference.replace("ROWS = 2\n", "ROWS = 2  # of a small call\n")
    task = TASK.model_copy(update={"reference": reference, "profiles": {"tiny": {"ROWS": 3}, "full": {"ROWS": 4096}}})

    def shown(task=task, **settings):
        texts = [Prompts.load(name).opening(task, EvalSettings(**settings))[-1].content for name in ("full", "compact")]
        lines = [next(line for line in text.splitlines() if line.startswith("ROWS")) for text in texts]
        assert lines[0] == lines[1]
        return lines[0]

    assert shown(profile="tiny") == "ROWS = 3  # timed at 4096"
    assert shown(profile=None) == "ROWS = 2  # timed at 4096"
    assert shown(profile="tiny", time_at="checked") == "ROWS = 3"
    assert shown(profile="full") == "ROWS = 4096"
    without = task.model_copy(update={"profiles": {"tiny": {"ROWS": 3}}})
    assert shown(without, profile="tiny") == "ROWS = 3  # timed at 2"
    assert shown(without, profile=None) == "ROWS = 2  # of a small call"
