"""Trees of turns in place of trajectories (TreePO, arXiv 2508.17445): a plug-in, ``plugins: [contrib.trees]``."""

from contrib.trees.shape import TreeShape

__all__ = ["TreeShape"]
