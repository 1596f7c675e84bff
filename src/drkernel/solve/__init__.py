"""Inference: any chat model, many turns, the best verified kernel; and the benchmark that scores models honestly."""
