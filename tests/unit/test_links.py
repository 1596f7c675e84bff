"""Links between the documents lead to files and headings that exist, and the commands on their pages exist, with their
options."""

import csv
import importlib.util
import re
import shlex
from pathlib import Path
from types import SimpleNamespace

import pytest

from drkernel.cli import COMMANDS, application
from places import ROOT

PAGES = sorted(
    [
        *ROOT.glob("*.md"),
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / "examples").rglob("README.md"),
        ROOT / "executor" / "README.md",
    ]
)
FENCE = re.compile(r"^(```|~~~).*?^\1\s*$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
COMMAND = re.compile(r"^(?:\$ )?(?:[A-Z_]+=\S+ )*drkernel ((?!\w+: ).*)$")


def anchors(page: Path) -> set[str]:
    """Anchors of a page's headings, as GitHub and mkdocs make them."""
    headings = re.findall(r"^#+ (.*)$", FENCE.sub("", page.read_text(encoding="utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    for link in LINK.findall(re.sub(r"`[^`\n]*`", "", FENCE.sub("", page.read_text(encoding="utf-8")))):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{page.name} links to {link}"
        if anchor and target.suffix == ".md":
            assert anchor in anchors(target), f"{page.name} links to {link}: no such heading"


@pytest.mark.parametrize("page", [one for one in PAGES if one.name != "CHANGELOG.md"], ids=lambda page: page.name)
def test_a_program_that_a_page_names_exists_or_the_line_says_at_which_commit_it_did(page):
    for line in page.read_text(encoding="utf-8").splitlines():
        gone = [name for name in re.findall(r"benchmarks/\w+\.py", line) if not (ROOT / name).exists()]
        assert not gone or re.search(r"\bat [0-9a-f]{8}\b", line), f"{page.name} names {gone[0]}"


def commands(page: Path) -> list[list[str]]:
    """The words of every ``drkernel`` command line in a page's code blocks."""
    found = []
    for block in re.findall(r"^```\w*\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL):
        for line in block.replace("\\\n", " ").splitlines():
            if match := COMMAND.match(line.strip()):
                lexer = shlex.shlex(match[1], posix=True, punctuation_chars="|;&<>")
                lexer.whitespace_split, lexer.commenters = True, "#"
                words = list(lexer)
                end = next(
                    (i for i, word in enumerate(words) if word in {"--", "|", "&", "&&", ";", ">", "<"}), len(words)
                )
                found.append(words[:end])
    return found


def options_of(command: str) -> set[str] | None:
    """The options of a command, of its subcommands too; None for one whose options are the keys of a config."""
    import typer

    top = typer.main.get_command(application(command))
    every = [top, *getattr(top, "commands", {}).values()]
    if any(one.context_settings.get("ignore_unknown_options") for one in every):
        return None
    return {word for one in every for option in one.params for word in (*option.opts, *option.secondary_opts)} | {
        "--help"
    }


@pytest.mark.parametrize(
    "page", [page for page in PAGES if commands(page)], ids=lambda page: str(page.relative_to(ROOT))
)
def test_commands_exist_with_their_options(page):
    for words in commands(page):
        command, *rest = words
        if command in {"COMMAND", "--help", "--version"}:
            continue
        assert command in COMMANDS, f"{page.name}: drkernel {' '.join(words)}"
        known = options_of(command)
        used = {word.partition("=")[0] for word in rest if word.startswith("--")}
        assert known is None or used <= known, f"{page.name}: drkernel {' '.join(words)}: no option {used - known}"


def test_the_page_of_the_paper_names_tests_and_recipes_that_exist():
    page = (ROOT / "docs" / "paper.csv").read_text()
    named = re.findall(r"`((?:tests/)?[\w/]*test_\w+\.py)(?:::(\w+))?`", page)
    assert len(named) > 30
    for file, test in named:
        path = ROOT / (file if file.startswith("tests/") else f"tests/unit/rl/{file}")
        assert path.is_file(), file
        assert not test or f"def {test}(" in path.read_text(), f"{file} has no {test}"
    for place in re.findall(r"`((?:recipes|benchmarks)/[\w.-]+)`", page):
        assert (ROOT / place).exists(), place


def test_the_faults_of_the_first_days_on_a_gpu_are_held_by_tests_that_exist():
    with (ROOT / "docs" / "gpu_faults.csv").open(encoding="utf-8", newline="") as file:
        named = {row["fault"]: re.findall(r"test_\w+", row["held by"]) for row in csv.DictReader(file)}
    there = set(re.findall(r"def (test_\w+)\(", "".join(p.read_text() for p in (ROOT / "tests").rglob("test_*.py"))))
    assert named and all(named.values())
    assert {fault: names for fault, names in named.items() if not {*names} <= there} == {}


def test_long_tables_stand_below_the_links_to_them():
    sheets = sorted((ROOT / "docs").rglob("*.csv"))
    assert sheets
    spec = importlib.util.spec_from_file_location("docs_links", ROOT / "scripts" / "docs_links.py")
    hook = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(hook)
    for path in sheets:
        link = re.compile(rf"^\[[^\]]+\]\({path.name}\)$", re.MULTILINE)
        (page,) = [page for page in path.parent.glob("*.md") if link.search(page.read_text(encoding="utf-8"))]
        with path.open(encoding="utf-8", newline="") as file:
            rows = list(csv.reader(file))
        assert len({len(row) for row in rows}) == 1, path
        source = SimpleNamespace(src_uri=str(page.relative_to(ROOT / "docs")))
        html = hook.on_page_content(f'<p><a href="{path.name}">x</a></p>', page=SimpleNamespace(file=source))
        assert html.count("<tr>") == len(rows) and 'class="searchable"' in html


def test_no_page_or_table_names_a_path_of_the_machine_that_made_it():
    for path in [*PAGES, *(ROOT / "docs").rglob("*.csv")]:
        assert not re.search(r"(?<![\w.])/(home|root|work|Users|var/tmp)/\w|site-packages", path.read_text("utf-8")), (
            path
        )


def test_pages_count_the_corpus_alike():
    counts = re.compile(r"(\d+) cheats, (\d+) caught;\s+(\d+) honest candidates, (\d+) condemned")
    said = {
        page: [tuple(map(int, found)) for found in counts.findall((ROOT / page).read_text(encoding="utf-8"))]
        for page in ("README.md", "docs/hacks.md", "docs/status.md")
    }
    with (ROOT / "docs" / "hacks.csv").open(encoding="utf-8", newline="") as file:
        tiers = [row["tier"] for row in csv.DictReader(file)]
    honest = tiers.count("honest")
    cheats = len(tiers) - honest
    assert all(found == [(cheats, cheats, honest, 0)] for found in said.values()), said
