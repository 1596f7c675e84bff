"""Runs the cases under Triton's own interpreter and saves what they gave: ``python interpreter_dump.py OUT NAME ...``.

A process of its own: ``TRITON_INTERPRET`` is read when a kernel is decorated.
"""

import os
import sys

os.environ["TRITON_INTERPRET"] = "1"

import torch

from all_cases import CASES


def main() -> None:
    """Save ``{case: [tensor, ...]}``; a case that the interpreter cannot run is saved as its error's text."""
    saved: dict[str, list[torch.Tensor] | str] = {}
    for name in sys.argv[2:]:
        try:
            saved[name] = [check.got.cpu() for check in CASES[name].run("cpu")]
        except Exception as error:  # what the interpreter cannot do is a result of this script
            saved[name] = f"{type(error).__name__}: {error}"
    torch.save(saved, sys.argv[1])


if __name__ == "__main__":
    main()
