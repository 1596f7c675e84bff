"""drkernel teaches language models to write fast GPU kernels.

Its packages import downward only:
``cli -> report, solve, serve, adapters -> rl -> episode -> gym -> sim, tasks -> task, verdict, config, registry``.
Importing ``drkernel`` itself loads none of them, and no torch, so the import is instant.
"""

__version__ = "0.1.0"
