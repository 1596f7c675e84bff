"""The multi-turn environment for other RL engines, one file and one extra each. See docs/adapters.md."""
