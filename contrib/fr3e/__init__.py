"""FR3E: partial rollouts from uncertain places (arXiv 2507.07017): a plug-in, ``plugins: [contrib.fr3e]``."""

from contrib.fr3e.shape import AnchorShape

__all__ = ["AnchorShape"]
