"""A minimal agent: it has the modules of a folder graded one after the other, and leaves the last correct one.

    drkernel solve examples/matmul_epilogue/reference.py \\
        --model "agent:python examples/agents/scripted.py examples/solve" --turns 5

Real agents write their modules themselves; how they are graded is the same three lines.
"""

import re
import subprocess
import sys
from pathlib import Path

best = None
for reply in sorted(Path(sys.argv[1]).glob("turn*.md")):
    module = re.findall(r"```python\n(.*?)```", reply.read_text(encoding="utf-8"), re.DOTALL)[-1]
    Path("attempt.py").write_text(module, encoding="utf-8")
    done = subprocess.run(["./evaluate", "attempt.py"], capture_output=True, text=True)
    print(done.stdout)
    if done.returncode == 0:
        best = module
if best is not None:
    Path("answer.py").write_text(best, encoding="utf-8")
