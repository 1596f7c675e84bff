"""The simulated device in a process of its own, and the judge's connection to it."""
