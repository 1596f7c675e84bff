"""Data to start from: cold-start trajectories, the programmatic teacher, practice in copying."""
