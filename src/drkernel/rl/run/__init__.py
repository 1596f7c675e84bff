"""A training run: recipe, rollout, learner, trainer, checkpoints and what is reported."""
