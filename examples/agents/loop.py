"""An agent around any program that answers a conversation: it looks at an answer before it spends an evaluation on it.

    drkernel bench --tag loss --turns 6 \\
        --model "agent:python examples/agents/loop.py --check python my_model.py"

The program is one for ``command:`` (docs/bench.md): it reads the conversation in the file that DRKERNEL_MESSAGES names
and writes an answer. A plain ``command:`` model pays an evaluation for every answer. This loop keeps the conversation
itself: an answer without code, or whose Python does not parse, goes back at once, and with ``--check`` so does one that
does not run on a simulated GPU without data (``drkernel sim --no-data``), with what was seen there. What passes is
evaluated.
"""

import argparse
import ast
import json
import os
import re
import subprocess
import sys
from pathlib import Path

FENCE = re.compile(r"```python\n(.*?)```", re.DOTALL)
CHECK = """
import importlib.util, torch

def load(name):
    spec = importlib.util.spec_from_file_location(name, name + ".py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module

theirs, ours = load("reference"), load("attempt")
arguments = theirs.get_init_inputs() if hasattr(theirs, "get_init_inputs") else []
reference, module = theirs.Model(*arguments).cuda(), ours.ModelNew(*arguments).cuda()
module.load_state_dict(reference.state_dict())
torch.set_default_device("cuda")
with torch.no_grad():
    inputs = theirs.get_inputs()
    expected, found = reference(*inputs), module(*inputs)
for a, b in zip(*((x if isinstance(x, tuple) else (x,)) for x in (expected, found)), strict=True):
    assert a.shape == b.shape and a.dtype == b.dtype, f"{b.dtype}{list(b.shape)} where {a.dtype}{list(a.shape)} is due"
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="try answers on a simulated GPU first")
    parser.add_argument("--answers", type=int, default=40, help="at most so many answers are asked for")
    parser.add_argument("program", nargs=argparse.REMAINDER, help="what answers the conversation")
    options = parser.parse_args()
    evaluated, reply = 0, ""
    messages = [{"role": "user", "content": Path("TASK.md").read_text(encoding="utf-8")}]
    for number in range(1, options.answers + 1):
        reply = ask(options.program, messages, number)
        feedback = look(reply, options.check)
        if feedback is None:
            done = subprocess.run(["./evaluate", "attempt.py"], capture_output=True, text=True)
            feedback, evaluated = done.stdout, evaluated + 1
            if done.returncode == 0:
                Path("answer.py").write_bytes(Path("attempt.py").read_bytes())
        messages += [{"role": "assistant", "content": reply}, {"role": "user", "content": feedback}]
    if not evaluated:
        Path("answer.py").write_text(reply or "pass", encoding="utf-8")  # a wrong answer, not a missing one


def ask(program: list[str], messages: list[dict[str, str]], number: int) -> str:
    """The program's answer to the conversation."""
    Path("messages.json").write_text(json.dumps(messages), encoding="utf-8")
    told = os.environ | {"DRKERNEL_MESSAGES": str(Path("messages.json").resolve()), "DRKERNEL_TURN": str(number)}
    return subprocess.run(program, env=told, capture_output=True, text=True).stdout


def look(reply: str, check: bool) -> str | None:
    """Write the answer's module to ``attempt.py``; what is wrong with it, or None where nothing is seen."""
    blocks = FENCE.findall(reply)
    if not blocks:
        return "There is no ```python block in the answer."
    try:
        ast.parse(blocks[-1])
    except SyntaxError as error:
        return f"Line {error.lineno}: {error.msg}"
    Path("attempt.py").write_text(blocks[-1], encoding="utf-8")
    if not check:
        return None
    Path("check.py").write_text(CHECK, encoding="utf-8")
    command = [sys.executable, "-m", "drkernel", "sim", "--no-data", "check.py"]
    done = subprocess.run(command, capture_output=True, text=True)
    return None if done.returncode == 0 else f"On a simulated GPU it fails:\n{done.stdout[-1500:]}"


if __name__ == "__main__":
    main()
