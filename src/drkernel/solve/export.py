"""Exports trajectories as data for supervised fine-tuning: conversations of runs, filtered, counted, each solution
once.

A row is the conversation that led to one answer, exactly as the model saw it (including cuts by context management),
with the answer last. A trajectory with a condemned answer never passes unless asked for, even if that answer came later
or was cut out of the conversation. With breadth, answers that the conversation did not continue from are not part of
the trajectory.
"""

import ast
import csv
import hashlib
import io
import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import AliasChoices, Field

from drkernel.base.files import replacing, write_atomic
from drkernel.config import Config, ConfigError
from drkernel.episode.records import Message, Turn, best_of, conversation, estimate_tokens, without_reasoning
from drkernel.episode.renderer import Prompts
from drkernel.solve.bench import Bench, read_bench
from drkernel.task import Task

CountTokens = Callable[[Sequence[Message]], int]


class ExportFilter(Config):
    """The filter for conversations. Conditions on the verdict apply to the answer that the conversation ends with."""

    end: Literal["best", "last", "every"] = Field(
        "best", description="the answer a row ends with: the best of each trajectory, its last, or one row for each"
    )
    status: tuple[str, ...] = Field(("correct",), description="statuses that pass; empty lets all pass")
    min_speedup: float | None = Field(None, ge=0, description="of the last answer")
    min_coverage: float | None = Field(None, ge=0, le=1, description="of the last answer, 0 to 1")
    allow_hacks: bool = Field(False, description="let trajectories with a condemned answer pass")
    without: tuple[str, ...] = Field((), description="findings of any severity that no answer of the row may have")
    max_tokens: int | None = Field(None, ge=1, description="longest conversation")
    keep_reasoning: bool = Field(True, description="keep the last answer's <think> part; earlier ones were never shown")


class ExportTurn(Config):
    """The verdict on one of the row's answers."""

    turn: int = Field(validation_alias=AliasChoices("turn", "number"))
    status: str
    reward: float | None
    speedup: float | None
    coverage: float | None
    checked_at: str | None = Field(description="arguments that answers were compared at, in words")
    timed_at: str | None = Field(description="arguments that speedup and coverage are of, in words")
    untimed: str | None = Field(description="why the task's own sizes were not timed")
    findings: tuple[str, ...]


class ExportRow(Config):
    """One conversation."""

    id: str
    task_id: str
    level: int
    model: str
    device: str = Field(description="what graded; a 'sim:' device models its times")
    messages: tuple[Message, ...]
    turns: tuple[ExportTurn, ...] = Field(description="a verdict for each answer, in order")
    tokens: int
    tokens_estimated: bool = Field(description="counted as one per four characters, for want of a tokenizer")
    prompts_version: str


class ExportSummary(Config):
    """Counts of what an export kept and left out."""

    rows: int
    tokens: int
    tasks: int
    left_out: dict[str, int] = Field(description="conversations that did not pass, by the first reason")


def export(
    runs: Sequence[Path], out: Path, terms: ExportFilter = ExportFilter(), count: CountTokens | None = None
) -> ExportSummary:
    """Write the conversations of ``runs`` to ``out``, a ``.jsonl`` or ``.parquet`` file.

    ``count`` counts the tokens of a conversation; None estimates them. Raises :class:`ConfigError` for another suffix
    or a directory that is not a run.
    """
    if out.suffix not in (".jsonl", ".parquet"):
        raise ConfigError(f"{out}: the file's name must end in .jsonl or .parquet")
    left_out: Counter[str] = Counter()
    best: dict[tuple[str, str], ExportRow] = {}
    for row, code in _rows(runs, terms, count, left_out):
        key = (row.task_id, normal_form(code))
        if key in best:
            left_out["duplicate"] += 1
            if _worth(best[key]) >= _worth(row):
                continue
        best[key] = row
    kept = list(best.values())
    out.parent.mkdir(parents=True, exist_ok=True)
    with replacing(out) as temporary:
        _write_jsonl(temporary, kept) if out.suffix == ".jsonl" else _write_parquet(temporary, kept)
    tokens = sum(row.tokens for row in kept)
    return ExportSummary(
        rows=len(kept), tokens=tokens, tasks=len({row.task_id for row in kept}), left_out=dict(left_out)
    )


def _rows(
    runs: Sequence[Path], terms: ExportFilter, count: CountTokens | None, left_out: Counter[str]
) -> Iterator[tuple[ExportRow, str]]:
    """Yield every row that passes, with the source of its last answer."""
    for run in runs:
        bench = read_bench(run)
        prompts = Prompts.load(str(run / "prompts"))
        for task in bench.tasks:
            for sample in range(bench.config.samples):
                turns = bench.played.turns((task.id, sample))
                made = {turn.id: turn for turn in turns}
                hacked = any(turn.verdict.is_hack for turn in bench.played.path((task.id, sample)))
                for end in _ends(turns, terms):
                    chain = [made[name] for name in end.shown if name in made] + [end]
                    reason = refusal(chain, terms, hacked)
                    row = _row(f"{run.name}/{task.id}/{sample}", bench, task, prompts, chain, terms, count)
                    if reason is None and terms.max_tokens is not None and row.tokens > terms.max_tokens:
                        reason = "too long"
                    if reason is not None:
                        left_out[reason] += 1
                    else:
                        yield row, end.code or end.reply.text


def _ends(turns: Sequence[Turn], terms: ExportFilter) -> list[Turn]:
    """Return the turns that conversations end with, as the filter selects them."""
    if not turns or terms.end == "every":
        return list(turns)
    if terms.end == "last":
        return [turns[-1]]
    eligible = [turn for turn in turns if refusal([turn], terms) is None]
    return [best_of(eligible) or (eligible or list(turns))[-1]]


def refusal(chain: Sequence[Turn], terms: ExportFilter, hacked: bool = False) -> str | None:
    """Return why a conversation does not pass; None when it does. ``hacked``: its trajectory holds a condemned
    answer."""
    end = chain[-1]
    if not terms.allow_hacks and (hacked or any(turn.verdict.is_hack for turn in chain)):
        return "trajectory with a hack"
    if terms.status and end.status not in terms.status:
        return f"ends {end.status}"
    if terms.min_speedup is not None and (end.speedup or 0.0) < terms.min_speedup:
        return "too slow"
    if terms.min_coverage is not None and (end.coverage or 0.0) < terms.min_coverage:
        return "too little coverage"
    found = {kind for turn in chain for kind in turn.findings}
    unwanted = [kind for kind in terms.without if kind in found]
    return f"finding {unwanted[0]}" if unwanted else None


def _row(
    name: str,
    bench: Bench,
    task: Task,
    prompts: Prompts,
    chain: Sequence[Turn],
    terms: ExportFilter,
    count: CountTokens | None,
) -> ExportRow:
    messages = conversation(prompts.opening(task, bench.config.episode.settings), chain[:-1])
    end = chain[-1]
    text = end.reply.text if terms.keep_reasoning else without_reasoning(end.reply.text)
    messages.append(Message(role="assistant", content=text))
    tokens = sum(estimate_tokens(message.content) for message in messages) if count is None else count(messages)
    return ExportRow(
        id=f"{name}/{end.id}",
        task_id=task.id,
        level=task.level,
        model=bench.model,
        device=end.verdict.device,
        messages=tuple(messages),
        turns=tuple(ExportTurn.model_validate(turn, from_attributes=True) for turn in chain),
        tokens=tokens,
        tokens_estimated=count is None,
        prompts_version=bench.resolved.prompts_version,
    )


def _worth(row: ExportRow) -> tuple[float, int]:
    """Sort key for rows with the same solution: the faster grade wins, then the shorter conversation."""
    return (row.turns[-1].speedup or 0.0, -row.tokens)


def normal_form(code: str) -> str:
    """Hash a source, ignoring comments, blank lines and layout; hash the text itself if it does not parse."""
    try:
        text = ast.dump(ast.parse(code))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        text = " ".join(code.split())
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def tokenizer_counter(path: str) -> CountTokens:
    """Return a counter that uses the chat template of a local Hugging Face tokenizer. Raises :class:`ConfigError`."""
    from drkernel.rl.model.tokenizer import ChatTokenizer

    try:
        tokenizer = ChatTokenizer.load(path)
    except (OSError, ValueError, ImportError) as error:
        raise ConfigError(f"cannot load the tokenizer {path!r}: {(str(error).splitlines() or [''])[0]}") from error

    def count(messages: Sequence[Message]) -> int:
        chat = [message.model_dump() for message in messages]
        return len(tokenizer.encode(str(tokenizer.hf.apply_chat_template(chat, tokenize=False))))

    return count


def _write_jsonl(path: Path, rows: Sequence[ExportRow]) -> None:
    path.write_text("".join(row.model_dump_json() + "\n" for row in rows), encoding="utf-8")


def _write_parquet(path: Path, rows: Sequence[ExportRow]) -> None:
    import pyarrow
    import pyarrow.parquet

    text, real, whole = pyarrow.string(), pyarrow.float64(), pyarrow.int64()
    message = pyarrow.struct([("role", text), ("content", text)])
    turn = pyarrow.struct(
        [("turn", whole), ("status", text), ("reward", real), ("speedup", real), ("coverage", real),
         ("checked_at", text), ("timed_at", text), ("untimed", text), ("findings", pyarrow.list_(text))]
    )  # fmt: skip
    schema = pyarrow.schema(
        [("id", text), ("task_id", text), ("level", whole), ("model", text), ("device", text),
         ("messages", pyarrow.list_(message)), ("turns", pyarrow.list_(turn)), ("tokens", whole),
         ("tokens_estimated", pyarrow.bool_()), ("prompts_version", text)]
    )  # fmt: skip
    data: list[dict[str, Any]] = [json.loads(row.model_dump_json()) for row in rows]
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(data, schema=schema), path)


# ---- Verdicts of runs for other people's tools


def _verdict_rows(name: str, bench: Bench) -> Iterator[dict[str, Any]]:
    """Yield a flat row for each graded answer of a run; None stands for what a verdict does not have."""
    for task in bench.tasks:
        for sample in range(bench.config.samples):
            for turn in bench.played.turns((task.id, sample)):
                verdict = turn.verdict
                yield {
                    "run": name,
                    "model": bench.model,
                    "task_id": task.id,
                    "level": task.level,
                    "sample": sample,
                    "turn": turn.id,
                    "status": turn.status,
                    "reward": turn.reward,
                    "speedup": turn.speedup,
                    "speedup_low": None if verdict.speedup is None else verdict.speedup.low,
                    "speedup_high": None if verdict.speedup is None else verdict.speedup.high,
                    "coverage": turn.coverage,
                    "seconds": None if verdict.timing is None else verdict.timing.seconds,
                    "timing": None if verdict.timing is None else verdict.timing.kind,
                    "device": verdict.device,
                    "checked_at": turn.checked_at,
                    "timed_at": turn.timed_at,
                    "untimed": verdict.untimed,
                    "findings": " ".join(turn.findings),
                    "tokens": turn.tokens,
                }


def write_verdicts(runs: Sequence[Path], out: Path) -> int:
    """Write a row for each graded answer of bench and solve runs as CSV; return how many there are."""
    rows = [row for run in runs for row in _verdict_rows(run.name, read_bench(run))]
    text = io.StringIO(newline="")
    table = csv.DictWriter(text, rows[0] if rows else (), lineterminator="\n")
    table.writeheader()
    table.writerows(rows)
    out.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(out, text.getvalue())
    return len(rows)
