"""The bench, compare, export, solve and report commands, on answers that hold no code and so need no grader."""

import csv
import json
from pathlib import Path

import pytest
import yaml

from commands import drkernel
from drkernel.cli import COMMANDS
from drkernel.tasks.loaders import builtin_task


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    """A finished bench of three tasks whose model answers in prose."""
    home = tmp_path_factory.mktemp("bench")
    (home / "replies.jsonl").write_text(json.dumps({"reply": "I would rather not."}) + "\n")
    drkernel(*bench_arguments(), cwd=home)
    return home


def bench_arguments(**changed):
    options = {"model": "script:replies.jsonl", "tasks": "builtin/level1", "match": "softmax", "turns": 2, "out": "r"}
    return ["bench", *(f"--{name}={value}" for name, value in {**options, **changed}.items())]


def test_a_bench_writes_its_summary_and_page_and_goes_on(run):
    done = drkernel(*bench_arguments(), "--json", cwd=run)
    summary = json.loads(done.stdout)
    assert summary == json.loads((run / "r" / "summary.json").read_text())
    assert summary["tasks"] == 3 and summary["status_all"] == {"compile_error": 6} and summary["incomplete"] == 0
    page = (run / "r" / "report.html").read_text()
    assert "modelled" in page and "builtin/level1/softmax" in page and "http" not in page.replace("http-equiv", "")


def test_the_table_says_what_kind_of_times_it_holds(run):
    done = drkernel(*bench_arguments(), cwd=run)
    assert "modelled on sim:h200, against eager PyTorch" in " ".join(done.stdout.split())
    assert "3 of 3 trajectories are there already" in done.stderr


def test_the_terms_of_a_run_are_a_file_to_start_from(run):
    config = yaml.safe_load((run / "r" / "config.yaml").read_text())
    assert config["episode"]["turns"] == 2 and config["choose"]["match"] == "softmax" and config["kind"] == "bench"
    done = drkernel("bench", "r/config.yaml", "--out", "r", "turns=2", cwd=run)
    assert "3 of 3 trajectories are there already" in done.stderr and "turns: 2" in done.stderr
    done = drkernel("solve", "builtin/level1/softmax", "r/config.yaml", cwd=run, code=2)
    assert "holds the terms of drkernel bench, not of solve" in done.stderr


def test_a_policy_keeps_its_other_options_when_one_is_given(run):
    (run / "terms.yaml").write_text("episode: {context: {name: best, keep: 4, every: 5}}")
    terms = ["--model", "script:replies.jsonl", "--turns", 1, "--out", "kept", "context.keep=2"]
    drkernel("solve", "builtin/level1/softmax", "terms.yaml", *terms, cwd=run, code=1)
    context = yaml.safe_load((run / "kept" / "config.yaml").read_text())["episode"]["context"]
    assert context == {"name": "best", "options": {"every": 5, "keep": 2}}


def test_a_model_may_be_called_otherwise_and_then_move(run):
    (run / "moved.jsonl").write_text((run / "replies.jsonl").read_text())
    drkernel(*bench_arguments(out="n", **{"model-name": "mine"}), cwd=run)
    done = drkernel(*bench_arguments(out="n", model="script:moved.jsonl", **{"model-name": "mine"}), cwd=run)
    assert "3 of 3 trajectories are there already" in done.stderr and "mine on builtin/level1" in done.stdout
    done = drkernel(*bench_arguments(out="r", model="script:moved.jsonl"), cwd=run, code=2)
    assert "model 'script:replies.jsonl' there, 'script:moved.jsonl' here" in done.stderr


def test_a_model_that_runs_out_of_replies_leaves_a_run_that_is_not_complete(run):
    (run / "short.jsonl").write_text(json.dumps({"reply": "No.", "turn": 1}) + "\n")
    done = drkernel(*bench_arguments(model="script:short.jsonl", out="short"), cwd=run, code=1)
    assert "3 trajectories are missing" in done.stdout


def test_compare_export_and_report(run):
    done = drkernel("compare", "r", "r", "--json", cwd=run)
    assert json.loads(done.stdout)["tasks"] == 3
    assert "last turn fast_1.2" in drkernel("compare", "r", "r", cwd=run).stdout
    done = drkernel("export", "r", "--out", "data.jsonl", cwd=run, code=1)
    assert "ends compile_error 3" in done.stdout
    done = drkernel("export", "r", "--out", "data.jsonl", "--status", "any", "--json", cwd=run)
    assert json.loads(done.stdout)["rows"] == 3 and len((run / "data.jsonl").read_text().splitlines()) == 3
    assert json.loads(drkernel("report", "r", "--json", cwd=run).stdout) == {"report": "r/report.html"}
    drkernel("export", "r", "--out", "verdicts.csv", cwd=run)
    rows = list(csv.DictReader((run / "verdicts.csv").open()))
    assert len(rows) == 6 and {row["status"] for row in rows} == {"compile_error"}


def test_several_runs_stand_on_one_page(run):
    drkernel(*bench_arguments(out="other", turns=2), cwd=run)
    done = drkernel("compare", "r", "other", "r", "--html", "board.html", "--json", cwd=run)
    assert [one["second"]["run"] for one in json.loads(done.stdout)] == ["other", "r"]
    page = (run / "board.html").read_text()
    assert "<h1>3 runs</h1>" in page and "other minus r" in page and page.count('<div class="legend">') == 3
    assert drkernel("compare", "r", cwd=run, code=2).stdout == ""


def test_solve_without_a_correct_answer_says_so_and_keeps_the_page(run):
    arguments = ["solve", "builtin/level1/softmax", "--model", "script:replies.jsonl", "--turns", 2, "--out", "s"]
    done = drkernel(*arguments, cwd=run, code=1)
    assert "no verified kernel in 2 attempts" in done.stdout and (run / "s" / "report.html").is_file()
    assert not (run / "s" / "best.py").exists()
    again = drkernel(*arguments[:-4], "--turns", 3, "--out", "s", "--json", cwd=run, code=1)  # goes on from two turns
    assert json.loads(again.stdout)["attempts"] == 3


def test_prompts_are_shown_written_and_taken_back(run):
    assert "You write fast GPU kernels" in drkernel("prompts", cwd=run).stdout
    shown = drkernel("prompts", "compact", "--task", "builtin/level1/softmax", cwd=run).stdout
    assert shown.startswith("=== user\nWrite ModelNew in Triton.") and "def get_inputs" in shown
    done = drkernel("prompts", "compact", "--out", "mine", cwd=run)
    assert "mine: feedback.txt, prompts.yaml, system.txt, task.txt; version" in done.stdout
    drkernel("prompts", "--out", "mine", cwd=run, code=2)
    (run / "mine" / "system.txt").write_text("Be brief.\n")
    drkernel(*bench_arguments(prompts="mine", out="own"), cwd=run)
    assert (run / "own" / "prompts" / "system.txt").read_text() == "Be brief.\n"
    again = drkernel(*bench_arguments(prompts="own/prompts", out="own"), cwd=run)  # as recorded: the same version
    assert "3 of 3 trajectories are there already" in again.stderr


def test_prompts_come_from_a_file_of_kernelgym_s_and_the_opening_from_data(run):
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    turn = {"name": "tool_response", "condition": "told == True", "history_mode": "all", "skip_env": 0.0}
    (run / "turns.yaml").write_text(
        json.dumps({"per_turn_prompts": [{**turn, "template": "Report: {feedback} Mend!"}]})
    )
    reference = builtin_task("builtin/level1/softmax").reference
    texts = [f"Speed up for $1:\n{reference.strip()}\nNow.", "Something else.", f"Speed up for $1:\n{reference}\nNow."]
    rows = [
        {
            "prompt": [{"role": "user", "content": text}],
            "reward_model": {"ground_truth": reference},
            "extra_info": {"index": 0},
        }
        for text in texts
    ]
    parquet.write_table(pyarrow.Table.from_pylist(rows[:2]), run / "rows.parquet")
    done = drkernel("prompts", "turns.yaml", "--opening", "rows.parquet", "--out", "released", cwd=run)
    assert "the form of 1 of 2 prompts" in done.stderr
    assert (run / "released" / "task.txt").read_text() == "Speed up for $$1:\n$reference\nNow.\n"
    for name in ("turns.yaml", "released"):
        drkernel(*bench_arguments(prompts=name, out=f"by-{name}"), cwd=run)
        lines = (run / f"by-{name}" / "turns.jsonl").read_text().splitlines()
        told = next(json.loads(line)["turn"]["feedback"] for line in lines if "feedback" in line)
        assert told.startswith("Report: {") and told.endswith("} Mend!") and '"compiled": false' in told
    parquet.write_table(pyarrow.Table.from_pylist(rows[1:2]), run / "none.parquet")
    refused = drkernel("prompts", "turns.yaml", "--opening", "none.parquet", cwd=run, code=2)
    assert "no prompt holds the reference" in refused.stderr


@pytest.mark.parametrize(("arguments", "message"), [
    (["bench", "--model", "gpt"], "cannot read the model"),
    (["bench", "--model", "script:replies.jsonl", "--tasks", "nonsense"], "cannot read the task spec"),
    (["bench", "--model", "script:replies.jsonl", "--match", "nothing-like-it"], "none of the"),
    (["bench", "--model", "script:replies.jsonl", "--budget-dollars", "5"], "give prices.prompt"),
    (["bench", "--model", "script:replies.jsonl", "prices.prompt=5"], "prices.completion: Field required"),
    (["bench", "--model", "script:replies.jsonl", "--baseline", "fast"], "baseline: Input should be"),
    (["bench", "--model", "script:replies.jsonl", "--prompts", "nowhere"], "no prompts 'nowhere'"),
    (["bench", "--model", "script:replies.jsonl", "extra.api_key=x"], "keys come from the environment"),
    (["bench", "--model", "script:replies.jsonl", "--temprature", "1"], "did you mean temperature"),
    (["bench", "--model", "script:replies.jsonl", "--seed", "1"], "could be episode.settings.seed or sampling.seed"),
    (["bench", "--model", "script:replies.jsonl", "--context", "bset"], "unknown context policy 'bset'; known: afresh"),
    (["bench", "replies.jsonl", "--model", "script:replies.jsonl"], "neither a key nor a file"),
    (["bench", "r/config.yaml", "nothing=1"], "unknown key 'nothing'"),
    (["solve", "s.yaml", "--model", "script:replies.jsonl"], "give one REFERENCE"),
    (["bench", "--model", "openai:m"], "no key: set OPENAI_API_KEY"),
    (["solve", "nothing.py", "--model", "script:replies.jsonl"], "cannot read the task spec 'nothing.py'"),
    (["solve", "builtin/level1", "--model", "script:replies.jsonl"], "solve takes one"),
    (["solve", "builtin/level1/softmax", "--model", "script:replies.jsonl", "context.keep=some"], "keep: Input"),
    (["compare", "nowhere", "nowhere"], "is not a bench run"),
    (["export", "nowhere", "--out", "x.jsonl"], "is not a bench run"),
])  # fmt: skip
def test_wrong_usage_is_one_line_and_code_2(run, monkeypatch, arguments, message):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    assert arguments[0] in COMMANDS
    done = drkernel(*arguments, cwd=run, code=2)
    assert message in done.stderr and "Traceback" not in done.output


@pytest.mark.parametrize("command", ["bench", "solve", "compare", "export", "prompts"])
def test_help_shows_how_it_ends_and_how_it_is_used(command, tmp_path):
    done = drkernel(command, "--help", cwd=tmp_path)
    assert "Exit codes" in done.output and "Examples" in done.output
