"""A training run: recipe, rollout, learner, trainer, checkpoints and reports."""
