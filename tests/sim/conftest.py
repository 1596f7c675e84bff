"""Makes the executor's harness and the conformance cases importable from every test below."""

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE / "conformance")]
