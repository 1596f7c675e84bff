"""``python -m drkernel``: the same as the ``drkernel`` command, for launchers that start modules."""

from drkernel.cli import main

main()
