"""drkernel teaches language models to write fast GPU kernels.

The package's rooms, imports going downward only:
``cli -> report, solve, serve -> rl -> gym -> sim, tasks -> task, verdict, config``.
Importing ``drkernel`` itself loads none of them (and no torch), so that it stays instant.
"""

__version__ = "0.1.0"
