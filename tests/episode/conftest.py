"""The tests of episodes share the fake judge and models of the tests above them."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "solve"))
