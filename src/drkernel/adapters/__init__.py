"""The multi-turn environment for other RL engines, each in a file and an extra of its own. See docs/adapters.md."""
