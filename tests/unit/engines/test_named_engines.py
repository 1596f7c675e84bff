"""``drkernel train --engine NAME``: engines of plug-ins, and names that nobody registered."""

from commands import invoke

PLUGIN = """
from drkernel.engines import engines


@engines.register("recorder")
def recorder(recipe, pool, dry_run):
    print(recipe.name, pool, dry_run)
    return 7
"""


def test_a_plugins_engine_gets_recipe_pool_and_dry_run_and_gives_the_exit_code(tmp_path, monkeypatch):
    (tmp_path / "my_engine.py").write_text(PLUGIN)
    monkeypatch.chdir(tmp_path)
    terms = ["quickstart", "name=seen", "plugins=[my_engine]", "--engine", "recorder", "--dry-run"]
    result = invoke("train", *terms, "--pool", "http://judge:8765")
    assert result.exit_code == 7, result.output
    assert "seen http://judge:8765 True" in result.output


def test_an_unknown_engine_is_refused_with_the_known_ones():
    result = invoke("train", "quickstart", "--engine", "vrel", "--dry-run")
    assert result.exit_code == 2
    assert "unknown engine 'vrel'" in result.output and "did you mean verl?" in result.output
