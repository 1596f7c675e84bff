"""Reinforcement learning: the maths (pure, torch only), the policy, rollouts, supervised fine-tuning, the trainer."""
