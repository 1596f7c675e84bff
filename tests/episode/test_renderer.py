"""Prompts: named sets, files of one's own, mistakes in them."""

import pytest
from solve_fakes import make_tasks

from drkernel.config import ConfigError
from drkernel.episode.episode import EpisodeConfig
from drkernel.episode.renderer import Prompts, task_prompt
from drkernel.gym.request import EvalSettings
from drkernel.verdict import Verdict

TASK = make_tasks(1)[0]
VERDICT = Verdict(status="incorrect", task_id="t", candidate_sha256="0" * 64, device="sim:h200")


def test_files_replace_the_set_one_by_one(tmp_path):
    (tmp_path / "system.txt").write_text("You know $device by heart. $$5\n")
    (tmp_path / "feedback.txt").write_text("[$turn/$turns] $feedback\n")
    prompts = Prompts.load(str(tmp_path))
    system, user = prompts.opening(TASK, EvalSettings())
    assert system.role == "system" and system.content == "You know NVIDIA H200 by heart. $5"
    assert user.content == task_prompt(TASK, EvalSettings(), "full")
    assert prompts.after(VERDICT, None, 2, 3).startswith("[2/3] Wrong result.")
    assert prompts.version != Prompts.load("full").version


def test_what_is_saved_reads_back_to_the_same_version(tmp_path):
    for name in ("full", "compact"):
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


def test_unknown_prompts_are_refused():
    with pytest.raises(ConfigError, match="'full', 'compact' or a directory"):
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
