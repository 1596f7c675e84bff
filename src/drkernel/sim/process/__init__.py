"""The simulated device in a process of its own, and the judge's line to it."""
