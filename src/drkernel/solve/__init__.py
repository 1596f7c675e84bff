"""Inference: chat clients, the refinement loop, sequential test-time scaling, benchmarks and their metrics."""
