"""The trusted side: reference, oracle, seeds, checks, experiments, clock and verdict."""
