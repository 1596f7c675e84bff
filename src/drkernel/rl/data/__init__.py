"""Training data for the start: cold-start trajectories, the program teacher, copying practice."""
