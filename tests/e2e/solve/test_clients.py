"""Scripted replies and programs as models."""

import asyncio
import json
import sys
import time

import pytest

from drkernel.config import ConfigError
from drkernel.episode.program import CommandModel, ScriptModel, render
from drkernel.episode.records import Message, ModelCall, ModelError, Sampling, without_reasoning
from drkernel.solve.config import open_model


def call(content="hello", **values):
    return ModelCall(messages=(Message(role="user", content=content),), **values)


def ask(model, *calls):
    async def go():
        try:
            return [await model.complete(one) for one in calls]
        finally:
            await model.close()

    return [reply.text for reply in asyncio.run(go())]


# ---- script


def test_the_line_that_says_most_wins(tmp_path):
    rows = [
        {"reply": "any"},
        {"reply": "second", "turn": 2},
        {"reply": "softmax", "task": "softmax"},
        {"reply": "softmax two", "task": "level1/softmax", "turn": 2},
        {"reply": "later", "turn": 2},
    ]
    path = tmp_path / "s.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)) + "\n\n")
    softmax = "builtin/level1/softmax"
    calls = [call(), call(turn=2), call(task_id=softmax), call(task_id=softmax, turn=2), call(task_id="x/mysoftmax")]
    assert ask(ScriptModel(path), *calls) == ["any", "second", "softmax", "softmax two", "any"]


def test_a_directory_of_turns_and_of_tasks(tmp_path):
    (tmp_path / "softmax").mkdir()
    (tmp_path / "turn1.md").write_text("one")
    (tmp_path / "turn2.md").write_text("two")
    (tmp_path / "softmax" / "turn1.md").write_text("softmax one")
    calls = [call(), call(turn=2), call(task_id="b/softmax"), call(task_id="b/softmax", turn=2)]
    assert ask(ScriptModel(tmp_path), *calls) == ["one", "two", "softmax one", "two"]
    with pytest.raises(ModelError, match="no reply for task b/relu, turn 3"):
        ask(ScriptModel(tmp_path), call(task_id="b/relu", turn=3))


@pytest.mark.parametrize(("text", "message"), [
    ("", "holds no reply"), ("{}\n", "line 1: Field required"), ('{"reply": 3}', "line 1: .*string"),
    ('{"reply": "x", "trun": 1}', "line 1: Extra"), ("nonsense", "line 1"),
])  # fmt: skip
def test_a_damaged_script_names_its_line(tmp_path, text, message):
    path = tmp_path / "s.jsonl"
    path.write_text(text)
    with pytest.raises(ConfigError, match=message):
        ScriptModel(path)


# ---- command


def python(tmp_path, source):
    path = tmp_path / "model.py"
    path.write_text(source)
    return f"{sys.executable} {path}"


def test_a_program_reads_the_prompt_and_the_conversation(tmp_path):
    source = """
import json, os, sys
said = json.load(open(os.environ["DRKERNEL_MESSAGES"]))
print(sys.stdin.read().upper(), len(said), os.environ["DRKERNEL_TASK"], os.environ["DRKERNEL_TURN"])
"""
    model = CommandModel(python(tmp_path, source))
    assert ask(model, call("grüße", task_id="t/1", turn=2)) == ["GRÜSSE 1 t/1 2\n"]


def test_several_messages_are_headed_by_their_roles():
    messages = [Message(role=role, content=role[0]) for role in ("system", "user", "assistant", "user")]
    assert render(messages) == "### system\ns\n\n### user\nu\n\n### assistant\na\n\n### user\nu\n\n### assistant\n"


def test_a_program_that_fails_may_be_tried_again(tmp_path):
    with pytest.raises(ModelError, match="ended with code 3: no quota") as caught:
        ask(CommandModel(python(tmp_path, "import sys; print('no quota', file=sys.stderr); sys.exit(3)")), call())
    assert caught.value.retry


def test_a_program_that_hangs_is_ended_with_its_children(tmp_path):
    source = f"""
import subprocess, sys, time
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(2); open({str(tmp_path / "late")!r}, 'w')"])
time.sleep(60)
"""
    with pytest.raises(ModelError, match=r"no answer in 1 s"):
        ask(CommandModel(python(tmp_path, source), timeout=1.0), call())
    time.sleep(2.2)
    assert not (tmp_path / "late").exists()


def test_a_program_that_never_stops_writing_is_ended(tmp_path):
    with pytest.raises(ModelError, match="wrote more than 16 MiB"):
        ask(CommandModel(python(tmp_path, "while True: print('x' * 100_000)")), call())


def test_a_program_that_does_not_exist_is_told_once():
    with pytest.raises(ModelError, match="cannot start /no/such") as caught:
        ask(CommandModel("/no/such --flag"), call())
    assert not caught.value.retry


# ---- specs and calls


@pytest.mark.parametrize(("spec", "message"), [
    ("gpt", "cannot read the model"), ("openai:", "cannot read the model"), ("foo:bar", "unknown kind"),
    ("command:", "cannot read"), ("command:'unclosed", "cannot read the command"), ("script:/no/such", "cannot read"),
])  # fmt: skip
def test_wrong_specs_say_what_is_right(spec, message):
    with pytest.raises(ConfigError, match=message):
        open_model(spec)


def test_an_address_is_for_endpoints_alone(tmp_path):
    with pytest.raises(ConfigError, match="openai: models"):
        open_model("command:cat", base_url="http://localhost/v1")


def test_a_call_s_key_tells_apart_what_must_be_asked_separately():
    base = call(task_id="t", sampling=Sampling(seed=1))
    others = [
        call("hi", task_id="t", sampling=Sampling(seed=1)),
        call(task_id="u", sampling=Sampling(seed=1)),
        call(task_id="t", sampling=Sampling(seed=1), sample=1),
        call(task_id="t", sampling=Sampling(seed=1), turn=2),
        call(task_id="t", sampling=Sampling(seed=2)),
        call(task_id="t", sampling=Sampling(seed=1, temperature=0.5)),
    ]
    keys = {one.key("m") for one in [base, *others]} | {base.key("n")}
    assert len(keys) == 8 and base.key("m") == call(task_id="t", sampling=Sampling(seed=1)).key("m")
    seeds = {base.seed, others[1].seed, others[2].seed, others[3].seed, others[4].seed}
    assert len(seeds) == 5 and call().seed is None


def test_reasoning_is_taken_off():
    assert without_reasoning("<think>a</think>\n\nb") == "b" and without_reasoning("b") == "b"
