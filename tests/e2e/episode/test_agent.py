"""Agents as models: real programs that work in a folder, with a judge that grades by words."""

import asyncio
import socket
import sys
import textwrap

import pytest

from drkernel.config import ConfigError
from drkernel.episode import program as agent_module
from drkernel.episode.episode import Episode, EpisodeConfig, play
from drkernel.episode.program import AgentModel, AgentTerms
from drkernel.episode.records import Reply
from drkernel.gym.sandbox import seccomp
from drkernel.solve.config import load_terms
from solve_fakes import TextPool, make_tasks
from waiting import gone, until

TASK = make_tasks(1)[0]
PRELUDE = """
import os, subprocess, sys
from pathlib import Path
LOG = Path({log!r})
def say(text):
    with LOG.open("a") as file:
        file.write(text + "\\n")
def evaluate(speed):
    Path("attempt.py").write_text(f"class ModelNew: SPEED = {{speed}}\\n" if speed else "class ModelNew: WRONG\\n")
    done = subprocess.run(["./evaluate", "attempt.py"], capture_output=True, text=True)
    say(f"{{done.returncode}} {{done.stdout.strip()[-200:]!r}} {{done.stderr[-200:]}}")
    return done
"""


@pytest.fixture
def agent(tmp_path):
    """Makes an agent of a few lines; ``log`` is what it says."""
    log = tmp_path / "log.txt"
    log.touch()

    def make(body, **terms):
        program = tmp_path / "agent.py"
        program.write_text(PRELUDE.format(log=str(log)) + textwrap.dedent(body))
        return AgentModel(f"{sys.executable} {program}", AgentTerms(**{"seconds": 60, **terms}))

    make.log = log
    return make


def work(model, turns=4, done=(), pool=None):
    async def go():
        episode = Episode(pool or TextPool(), EpisodeConfig(turns=turns))
        await episode.reset(TASK)
        try:
            return await play(episode, model, done=done)
        finally:
            await model.close()

    return asyncio.run(go())


def test_each_evaluation_is_a_turn_and_the_agent_reads_the_verdict(agent):
    model = agent(
        """
        assert "class Model" in Path("reference.py").read_text()
        assert "limited to 4" in Path("TASK.md").read_text()
        evaluate(1.5)
        evaluate(None)
        evaluate(2.5)
        Path("answer.py").write_text(Path("attempt.py").read_text())
        """
    )
    played = work(model)
    assert [turn.status for turn in played.turns] == ["correct", "incorrect", "correct"]
    assert [turn.speedup for turn in played.turns] == [1.5, None, 2.5]
    assert played.end == "answered" and "code 0" in played.detail
    said = agent.log.read_text().splitlines()
    assert [line.split()[0] for line in said] == ["0", "1", "0"]  # the exit code of evaluate
    assert "evaluations used: 1" in said[0] and "Wrong result" in said[1]


def test_what_it_leaves_is_graded_if_it_was_not_yet(agent):
    played = work(agent("evaluate(1.5)\nPath('answer.py').write_text('class ModelNew: SPEED = 3.0\\n')"))
    assert [turn.speedup for turn in played.turns] == [1.5, 3.0] and played.end == "answered"


def test_evaluations_are_counted_here_and_the_agent_is_ended_with_them(agent):
    pool = TextPool()
    played = work(agent("say(str(os.getpid()))\nwhile True:\n    evaluate(1.1)\n"), turns=3, pool=pool)
    assert played.end == "turns" and len(played.turns) == 3 == len(pool.requests)
    until(lambda: gone(int(agent.log.read_text().split()[0])))


def test_when_its_time_is_up_its_answer_counts_and_its_children_are_gone(agent):
    body = """
    Path("answer.py").write_text("class ModelNew: SPEED = 2.0\\n")
    child = subprocess.Popen(["sleep", "1000"])
    say(str(child.pid))
    child.wait()
    """
    played = work(agent(body, seconds=3.0))
    assert [turn.speedup for turn in played.turns] == [2.0]
    assert played.end == "answered" and played.detail == "its time is up"
    until(lambda: gone(int(agent.log.read_text())))


def test_an_agent_that_fails_before_it_tries_is_a_failure_of_the_model(agent):
    played = work(agent("sys.exit('no key is set')"))
    assert played.end == "model_error" and "no key is set" in played.detail and not played.turns


def test_a_run_is_taken_up_again_with_what_was_graded(agent):
    first = work(agent("evaluate(1.5)\nevaluate(1.7)"), turns=2)
    again = agent(
        """
        say(" ".join(sorted(os.listdir("earlier"))))
        assert "SPEED = 1.7" in Path("earlier/2.py").read_text()
        evaluate(2.0)
        """
    )
    played = work(again, turns=3, done=first.turns)
    assert [turn.speedup for turn in played.turns] == [1.5, 1.7, 2.0]
    assert "1.py 1.txt 2.py 2.txt" in agent.log.read_text()


@pytest.mark.skipif(not seccomp.abi(), reason="the kernel has no Landlock")
@pytest.mark.parametrize("sandbox", ["none", "folder", "offline"])
def test_the_folder_is_sandboxed_as_the_user_allows(agent, tmp_path, sandbox):
    (outside := tmp_path / "outside").mkdir()
    listener = socket.create_server(("127.0.0.1", 0))
    body = f"""
    import socket
    def tried(what):
        try:
            what()
            return "yes"
        except OSError:
            return "no"
    writes = tried(lambda: open("{outside}/x", "w"))
    connects = tried(lambda: socket.create_connection(("127.0.0.1", {listener.getsockname()[1]}), 5))
    Path("note.txt").write_text(f"writes {{writes}} connects {{connects}}")
    Path("answer.py").write_text("class ModelNew: SPEED = 2.0  # " + Path("note.txt").read_text())
    """
    played = work(agent(body, sandbox=sandbox))
    expected = {"none": "writes yes connects yes", "folder": "writes no connects yes"}
    if seccomp.abi() >= 4 or sandbox != "offline":
        assert expected.get(sandbox, "writes no connects no") in played.turns[0].code
    listener.close()


def test_the_command_is_started_by_the_path_it_was_given(tmp_path, monkeypatch):
    # the python of a virtual environment is a link, and finds its packages by the link's own place
    (tmp_path / "env").mkdir()
    (tmp_path / "env" / "python").symlink_to(sys.executable)
    monkeypatch.chdir(tmp_path)
    words = agent_module.command_line(["env/python", "-c", "pass", "env"], tmp_path, AgentTerms())
    assert words == [str(tmp_path / "env" / "python"), "-c", "pass", "env"]


def test_an_agent_keeps_its_own_memory():
    config = load_terms("solve", None, ["model=agent:true"])
    assert config.episode.context.name == "full"
    with pytest.raises(ConfigError, match="breadth"):
        load_terms("solve", None, ["model=agent:true", "breadth=2"])
    with pytest.raises(ConfigError, match="needs a program"):
        AgentModel(" ")


def test_a_reply_can_always_be_written_and_a_huge_answer_is_not_read(tmp_path):
    assert Reply(text="x\ud800y").model_dump_json() and Reply(text="\u00e4\U0001f600").text == "\u00e4\U0001f600"
    with (tmp_path / "answer.py").open("wb") as file:
        file.truncate(1 << 40)
    assert len(agent_module._part(tmp_path / "answer.py", 0, 1000)) == 1000
    assert len(agent_module._part(tmp_path / "answer.py", (1 << 40) - 10, 1000)) == 10


@pytest.mark.parametrize("left", ["os.symlink('/proc/self/mem', 'answer.py')", "os.mkfifo('answer.py')"])
def test_a_link_or_a_pipe_in_place_of_its_answer_is_no_answer(agent, left):
    played = work(agent(f"evaluate(1.5)\n{left}"))
    assert [turn.status for turn in played.turns] == ["correct"]


def test_attempts_that_wait_are_bounded(agent):
    model = agent(
        """
        import contextlib, json, socket
        def attempt():
            link = socket.socket(socket.AF_UNIX)
            link.connect(".socket")
            with contextlib.suppress(OSError):  # it may be refused before it is read
                link.sendall(json.dumps({"source": "class ModelNew: SPEED = 1.5"}).encode() + b"\\n")
            return link
        links = [attempt() for _ in range(40)]
        say(str(sum(b"others wait" in link.recv(1000) for link in links) > 0))
        """
    )
    work(model, turns=50)
    assert agent.log.read_text() == "True\n"
