"""The adapters' tests share the solve tests' fakes; an engine that is not installed is skipped by its own file."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "solve"))
