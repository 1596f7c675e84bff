"""The module that verl imports in each of its processes (``VERL_USE_EXTERNAL_MODULES``): it registers our trainer and,
for runs of verl on a CPU, a platform.
"""

import os

if os.environ.get("VERL_PLATFORM") == "cpu":
    from drkernel.engines.verl import cpu_platform  # noqa: F401, I001 (before anything of verl asks for a device)
    from drkernel.engines.verl import cpu_sampler  # noqa: F401

from drkernel.engines.verl import trainer  # noqa: F401
