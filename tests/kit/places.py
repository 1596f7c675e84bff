"""Where things lie in a checkout, for tests of any depth."""

from pathlib import Path

KIT = Path(__file__).parent
TESTS = KIT.parent
ROOT = TESTS.parent
SOURCES = ROOT / "src" / "drkernel"
EXECUTOR = ROOT / "executor" / "src" / "ttir_executor"
BENCHMARKS, DOCS, EXAMPLES, RECIPES = (ROOT / name for name in ("benchmarks", "docs", "examples", "recipes"))
